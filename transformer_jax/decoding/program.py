"""Decoding as pure functions of shapes, for tools that compile it without a run."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.array_types import PyTree


class DecodingProgram(NamedTuple):
    """Decoding of ``rows`` inputs of ``width`` positions; ``inputs`` are their shapes, rows first.

    ``start(params, inputs, capacity)`` reads the inputs and makes the state before the first token,
    for at most ``capacity`` tokens. ``step(params, state)`` chooses one more token in every row.
    ``capacities``: pairs of a capacity and the number of tokens chosen in it, in order, for rows
    that are all as long as allowed.
    """

    rows: int
    width: int
    beam_width: int
    inputs: PyTree
    start: Callable[[PyTree, PyTree, int], PyTree]
    step: Callable[[PyTree, PyTree], PyTree]
    capacities: list[tuple[int, int]]

    @property
    def tokens(self) -> int:
        """Tokens of a row after all steps."""
        return sum(count for _, count in self.capacities)
