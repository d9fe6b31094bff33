"""Decoding of one batch as pure functions of parameters and shapes, which preflight compiles without a run."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.array_types import PyTree


class DecodingProgram(NamedTuple):
    """The search of a task over ``rows`` inputs of ``width`` positions, whose shapes, rows first, are ``inputs``.

    ``start(params, inputs, room)`` reads the inputs and makes the state before the first token, with room for so many;
    ``step(params, state)`` chooses one token more in every row. ``rooms`` are the rooms that a search comes to have, with the
    tokens chosen in each; none of the rows ends before the last.
    """

    rows: int
    width: int
    beam_width: int
    inputs: PyTree
    start: Callable[[PyTree, PyTree, int], PyTree]
    step: Callable[[PyTree, PyTree], PyTree]
    rooms: list[tuple[int, int]]

    @property
    def tokens(self) -> int:
        """Tokens of a row after all its steps."""
        return sum(count for _, count in self.rooms)
