"""Statistics of a split: its examples, and those that were left out."""

from dataclasses import asdict, dataclass

import numpy as np

from transformer_jax.array_types import UNK_ID

COUNTED_TOKENS = 10_000_000
# Upper ends of the bars of a histogram: 1-5, 6-10, ...
HISTOGRAM_EDGES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
BAR_CHARACTERS = 30


def unigram_entropy(ids: np.ndarray) -> float:
    """The loss of guessing tokens by their frequency, in nats per token; counts the first 10 million tokens."""
    counts = np.bincount(np.asarray(ids[:COUNTED_TOKENS], np.int64))
    shares = counts[counts > 0] / counts.sum()
    return float(-np.sum(shares * np.log(shares)))


class SideCounter:
    """Counts one side of a split, chunk after chunk, in memory that does not grow."""

    def __init__(self) -> None:
        self.sentences = self.tokens = self.unknown = self.longest = 0
        self._bars = np.zeros(len(HISTOGRAM_EDGES) + 1, np.int64)

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Counts sentences given as flat ``ids`` and their ``lengths``, EOS included."""
        self.sentences += len(lengths)
        self.tokens += int(lengths.sum())
        self.unknown += int((ids == UNK_ID).sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        bars = np.searchsorted(HISTOGRAM_EDGES, lengths)
        self._bars += np.bincount(bars, minlength=len(self._bars))

    def result(self) -> "SideStatistics":
        """The counts so far."""
        lows = [1, *(edge + 1 for edge in HISTOGRAM_EDGES)]
        labels = [*(f"{low}-{high}" for low, high in zip(lows, HISTOGRAM_EDGES, strict=False)), f"above {lows[-1] - 1}"]
        histogram = dict(zip(labels, map(int, self._bars), strict=True))
        return SideStatistics(
            tokens=self.tokens,
            mean_length=self.tokens / max(self.sentences, 1),
            longest=self.longest,
            unknown_share=self.unknown / max(self.tokens, 1),
            histogram=histogram,
        )


@dataclass(frozen=True)
class SideStatistics:
    """One side of the kept pairs; lengths in tokens, EOS included. ``histogram``: ``{"1-5": sentences, ...}``."""

    tokens: int
    mean_length: float
    longest: int
    unknown_share: float
    histogram: dict[str, int]


@dataclass(frozen=True)
class StoreStatistics:
    """A token store in numbers: of ``read`` pairs ``kept`` were kept and ``dropped[reason]`` left out."""

    split: str
    read: int
    kept: int
    dropped: dict[str, int]
    source: SideStatistics
    target: SideStatistics

    def to_json(self) -> dict[str, object]:
        """The fields, as what ``json.dumps`` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict) -> "StoreStatistics":
        """Inverse of ``to_json``."""
        sides = {side: SideStatistics(**fields[side]) for side in ("source", "target")}
        return cls(**{**fields, **sides})

    def table(self) -> str:
        """The counts as plain text."""
        lines = [f"{self.split}: {self.kept:,} pairs of {self.read:,}"]
        lines += [
            f"  left out: {count:,} of {self.read:,}, {reason}" for reason, count in self.dropped.items() if count
        ]
        for name, side in (("source", self.source), ("target", self.target)):
            lines.append(
                f"  {name}: {side.tokens:,} tokens, {side.mean_length:.1f} a sentence, at most {side.longest}, "
                f"unknown {side.unknown_share:.2%}"
            )
        lines.append(f"  {'tokens':>9}  {'source':>8}  {'target':>8}")
        tallest = max(self.target.histogram.values(), default=0) or 1
        for label, count in self.target.histogram.items():
            of_source = self.source.histogram[label]
            if count or of_source:
                bar = "#" * round(BAR_CHARACTERS * count / tallest)
                lines.append(f"  {label:>9}  {of_source:>8,}  {count:>8,}  {bar}".rstrip())
        return "\n".join(lines)
