"""What is seen of a sweep that has more trials than a screen has lines."""

from typing import NamedTuple

from transformer_jax.tools.sweeps.progress import MOST_ROWS, _drawn


class Trials(NamedTuple):
    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = ("trial", "state")


def test_what_is_going_on_is_seen_and_what_ended_long_ago_gives_way():
    states = ["complete", "running", *["complete"] * 40, "running", "failed", "waiting"]
    drawn = _drawn(Trials(tuple((str(number), state) for number, state in enumerate(states))))
    assert list(drawn.columns[0].cells) == ["1", "42", "43", *(str(41 - n) for n in range(MOST_ROWS - 3))]
    assert drawn.caption == "41 complete, 2 running, 1 failed, 1 waiting"
