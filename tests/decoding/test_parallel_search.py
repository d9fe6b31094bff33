"""Parts of the work in threads: nothing is lost, nothing done twice, and nobody goes on after an error."""

import threading

import pytest

from transformer_jax.decoding.parallel_search import in_parallel


def squares(numbers):
    for number in numbers:
        yield number, number**2


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_item_is_taken_once(threads, count):
    assert sorted(in_parallel(squares, range(count), threads)) == list(squares(range(count)))


def test_which_thread_has_an_item_does_not_depend_on_time():
    parts = in_parallel(lambda items: [tuple(items)], range(9), 2)
    assert sorted(parts) == [(0, 2, 4, 6, 8), (1, 3, 5, 7)]


def test_two_items_are_in_work_at_a_time():
    meeting = threading.Barrier(2)

    def met(numbers):
        for number in numbers:
            meeting.wait(timeout=10)
            yield number

    assert sorted(in_parallel(met, range(4), 2)) == [0, 1, 2, 3]


def test_a_single_item_needs_no_thread():
    assert list(in_parallel(lambda items: (threading.current_thread() for _ in items), "a", 2)) == [
        threading.current_thread()
    ]


def test_an_error_in_a_thread_is_raised_and_ends_the_others():
    taken = []

    def failing(numbers):
        for number in numbers:
            taken.append(number)
            if number == 3:
                raise ValueError("number 3")
            yield number

    with pytest.raises(ValueError, match="number 3"):
        list(in_parallel(failing, iter(range(10**6)), 2))
    # The other thread alone has half of them.
    assert len(taken) < 10**6 // 4


def test_who_reads_no_further_stops_the_threads():
    given = iter(range(10**6))
    results = in_parallel(squares, given, 2)
    next(results)
    results.close()
    assert next(given) < 10**6 - 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("search")]
