"""Word alignments: the Pharaoh format, and the alignment error rate against manual alignments."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transformer_jax.errors import DataError

LINK = re.compile(r"(\d+)([-?p])(\d+)")

Links = frozenset[tuple[int, int]]
"""Pairs of (source word, target word), counted from 0."""


class GoldAlignment(NamedTuple):
    """Links of all annotators (``sure``), and links of at least one (``possible``, a superset)."""

    sure: Links
    possible: Links


@dataclass(frozen=True)
class AlignmentScores:
    """Error rate, precision against possible links and recall of sure links, from 0 to 1."""

    error_rate: float
    precision: float
    recall: float
    num_links: int
    num_sentences: int


def best_links(weights: np.ndarray) -> Links:
    """Link target words to the source words with the largest weights ``[T, S]``.

    ``[[0.1, 0.9], [0.8, 0.2]]`` gives ``{(1, 0), (0, 1)}``.
    """
    if not weights.size:
        return frozenset()
    return frozenset((int(source), target) for target, source in enumerate(weights.argmax(axis=1)))


def to_pharaoh(links: Links) -> str:
    """Return the links as ``0-0 1-2`` (source-target), sorted by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_gold(lines: Iterable[str], name: str, first_index: int = 0) -> list[GoldAlignment]:
    """Read the Pharaoh format, a sentence a line: ``0-0`` is a sure link, ``1?2`` a possible one.

    ``1p2`` is a possible link too. ``first_index``: the number of the first word, 0 or 1. Raises
    DataError with file and line.
    """
    gold = []
    for number, line in enumerate(lines, start=1):
        sure, possible = set(), set()
        for text in line.split():
            link = LINK.fullmatch(text)
            if not link or int(link[1]) < first_index or int(link[3]) < first_index:
                problem = f"{text!r} is not a link such as 0-0 (sure) or 1?2 (possible)"
                raise DataError(f"{name}, line {number}: {problem}, words counted from {first_index}")
            pair = int(link[1]) - first_index, int(link[3]) - first_index
            possible.add(pair)
            if link[2] == "-":
                sure.add(pair)
        gold.append(GoldAlignment(frozenset(sure), frozenset(possible)))
    return gold


def require_words(gold: Sequence[GoldAlignment], shapes: Sequence[tuple[int, ...]], name: str) -> None:
    """Raise DataError if a link exceeds its sentence, of ``shapes`` (target, source) words."""
    for number, (links, (targets, sources)) in enumerate(zip(gold, shapes, strict=True), start=1):
        for source, target in sorted(links.possible):
            if source >= sources or target >= targets:
                problem = f"links word {source} with {target}, from 0, of a pair of {sources} and {targets} words"
                raise DataError(f"{name}, line {number}: {problem}; if the file counts from 1, set --first_word=1")


def score_alignments(alignments: Sequence[Links], gold: Sequence[GoldAlignment]) -> AlignmentScores:
    """Return AER = 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and Ney 2003, section 5.2).

    Raises DataError if the numbers of sentences differ, or there are no links.
    """
    if len(alignments) != len(gold):
        raise DataError(f"{len(alignments)} alignments but {len(gold)} lines of gold; line i is sentence i")
    links, sure = sum(map(len, alignments)), sum(len(reference.sure) for reference in gold)
    in_sure = sum(len(links & reference.sure) for links, reference in zip(alignments, gold, strict=True))
    in_possible = sum(len(links & reference.possible) for links, reference in zip(alignments, gold, strict=True))
    if not links + sure:
        raise DataError("there is no link to compare, neither in the model nor in the gold alignment")
    return AlignmentScores(
        error_rate=1 - (in_sure + in_possible) / (links + sure),
        precision=in_possible / max(links, 1),
        recall=in_sure / max(sure, 1),
        num_links=links,
        num_sentences=len(alignments),
    )
