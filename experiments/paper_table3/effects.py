"""What a change does beside the base model, here and in the paper: which way it goes, and whether
chance may have done it."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """A figure of models that differ in their seed alone."""

    mean: float
    least: float
    most: float
    seeds: int


class Effect(NamedTuple):
    """A row minus its base, in the paper and here; ``is_decided`` when no seed of one is among
    those of the other."""

    paper: float
    ours: float
    is_decided: bool

    @property
    def agrees(self) -> bool | None:
        """Whether both go the same way; None where the paper reports no difference."""
        return None if self.paper == 0 else self.paper * self.ours > 0

    def words(self) -> str:
        """``as the paper``, ``opposite``, ``paper: none``; with a question mark where seeds alone
        may explain ours."""
        verdict = {True: "as the paper", False: "opposite", None: "paper: none"}[self.agrees]
        return verdict if self.is_decided else f"{verdict} (?)"


def spread(values: Sequence[float]) -> Spread:
    """Mean, least, most and how many."""
    return Spread(sum(values) / len(values), min(values), max(values), len(values))


def effect(paper: float, paper_base: float, ours: Spread, base: Spread) -> Effect:
    """Of a row, given what the paper reports of it and of its base.

    A single seed on either side has no spread to compare with: then nothing is decided.
    """
    is_apart = ours.least > base.most or ours.most < base.least
    # As the paper prints them: 4.91 - 4.92 in binary is a little off.
    difference = round(paper - paper_base, 6)
    return Effect(difference, ours.mean - base.mean, is_apart and min(ours.seeds, base.seeds) > 1)


def chance_apart(seeds: int) -> float:
    """The probability that ``seeds`` seeds of each of two equal models do not mix: 2 of the orders
    in which they can lie."""
    return 2 / math.comb(2 * seeds, seeds)


def tally(effects: Sequence[Effect]) -> tuple[int, int]:
    """Of the effects that are decided and that the paper has: how many go its way, and how many
    there are."""
    decided = [each.agrees for each in effects if each.is_decided and each.agrees is not None]
    return sum(decided), len(decided)
