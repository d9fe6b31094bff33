"""Counts of tokenized splits: pairs, tokens, lengths, unknown tokens, and entropy."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from transformer_jax.array_types import UNK_ID
from transformer_jax.data.mixed_corpora import ranges_of
from transformer_jax.data.pair_encoding import Sentences

# Upper ends of the bars of a histogram: 1-5, 6-10, ...
HISTOGRAM_EDGES = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
BAR_CHARACTERS = 30
COUNTED_TOKENS = 10_000_000


class SideCounts:
    """Counts of the sentences of a side of a part, for ``SideStatistics.of``."""

    def __init__(self) -> None:
        self.sentences = self.tokens = self.unknown = self.longest = 0
        self._bars = np.zeros(len(HISTOGRAM_EDGES) + 1, np.int64)
        self._is_seen = np.zeros(1, bool)

    def add(self, sentences: Sentences) -> None:
        ids, lengths = sentences
        self.sentences += len(lengths)
        self.tokens += int(lengths.sum())
        self.unknown += int((ids == UNK_ID).sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        if (size := int(ids.max(initial=0)) + 1) > len(self._is_seen):
            self._is_seen = np.pad(self._is_seen, (0, size - len(self._is_seen)))
        self._is_seen[ids] = True
        self._bars += np.bincount(np.searchsorted(HISTOGRAM_EDGES, lengths), minlength=len(self._bars))

    def to_json(self) -> dict[str, Any]:
        sums = {name: getattr(self, name) for name in ("sentences", "tokens", "unknown", "longest")}
        seen = np.packbits(self._is_seen, bitorder="little")
        return sums | {"bars": self._bars.tolist(), "seen": base64.b64encode(seen.tobytes()).decode("ascii")}


@dataclass(frozen=True)
class SideStatistics:
    """Statistics of a side of the kept pairs, with lengths in tokens with EOS.

    Attributes:
        histogram: ``{"1-5": sentences, ...}``.
        seen: The ids that occur, a bit an id from the lowest, in base 64. Empty for a store of an
            earlier version.
    """

    tokens: int
    mean_length: float
    longest: int
    unknown_share: float
    histogram: dict[str, int]
    seen: str = ""

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> "SideStatistics":
        """Return the statistics of all parts, from their ``SideCounts``."""
        sentences, tokens, unknown = (sum(part[name] for part in parts) for name in ("sentences", "tokens", "unknown"))
        edges = (0, *HISTOGRAM_EDGES)
        labels = [f"{low + 1}-{high}" for low, high in zip(edges, HISTOGRAM_EDGES, strict=False)]
        bars = np.sum([part["bars"] for part in parts], axis=0).tolist()
        histogram = dict(zip([*labels, f"above {edges[-1]}"], bars, strict=True))
        longest = max(part["longest"] for part in parts)
        seen = _union([part.get("seen", "") for part in parts])
        return cls(tokens, tokens / max(sentences, 1), longest, unknown / max(tokens, 1), histogram, seen)


def _union(parts: Sequence[str]) -> str:
    """Return the union of masks in base 64, empty if one of them is."""
    masks = [base64.b64decode(part) for part in parts]
    union = reduce(or_, (int.from_bytes(mask, "little") for mask in masks))
    return base64.b64encode(union.to_bytes(max(map(len, masks)), "little")).decode("ascii") if all(masks) else ""


@dataclass(frozen=True)
class StoreStatistics:
    """Statistics of a token store: numbers of pairs ``read``, ``kept`` and ``dropped`` by reason.

    ``corpora``: numbers of kept pairs of the corpora of a mixture, in order.
    """

    split: str
    read: int
    kept: int
    dropped: dict[str, int]
    source: SideStatistics
    target: SideStatistics
    corpora: dict[str, int] = field(default_factory=dict)

    def table(self) -> str:
        lines = [f"{self.split}: {self.kept:,} pairs of {self.read:,}"]
        lines += [f"  {name}: {count:,} pairs" for name, count in self.corpora.items()]
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


def unigram_entropy(
    ids: Any, sizes: Mapping[str, int] | None = None, times: Mapping[str, float] | None = None
) -> float:
    """Return the entropy of token frequencies in nats, the loss of a unigram model.

    At most 10 million tokens are counted. The corpora of a mixture have ``sizes`` tokens, lie in
    ``ids`` one after the other, and occur ``times`` in an epoch.
    """
    sizes = sizes or {"": len(ids)}
    counts = np.zeros(0)
    for name, begin, number in ranges_of(sizes):
        counted = min(number, COUNTED_TOKENS // len(sizes))
        tally = np.bincount(np.asarray(ids[begin : begin + counted], np.int64))
        counts = np.pad(counts, (0, max(len(tally) - len(counts), 0)))
        counts[: len(tally)] += tally * ((times or {}).get(name, 1.0) * number / max(counted, 1))
    shares = counts[counts > 0] / counts.sum()
    return float(-np.sum(shares * np.log(shares)))


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for part in counts:
        sums.update(part)
    return dict(sums)
