"""Filters of training pairs."""

import pytest

MANY = "a b" * 400_000


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "b"), "empty source"),
        (("a", " "), "empty target"),
        (("ab", "ab"), "target is the source"),
        (("abcdef", "bcdef"), "source above 5 tokens"),
        (("abcde", "bcdefgh"), "target above 6 tokens"),
        (("abcde", "b"), "one side above 2 times the other"),
        ((MANY, "b"), "a line above 1,000,000 bytes"),
        (("b", MANY), "a line above 1,000,000 bytes"),
    ],
)
def test_each_reason_is_counted(store_of, pair, reason):
    good = ("abcde", "bcdefg")
    store = store_of(
        [good, pair, good], is_training=True, max_source_tokens=5, max_target_tokens=6, max_length_ratio=2.0
    )
    assert store.statistics.read == 3
    assert store.statistics.kept == store.num_pairs == 2
    assert {name: count for name, count in store.statistics.dropped.items() if count} == {reason: 1}
    assert f"left out: 1 of 3, {reason}" in store.statistics.table()
