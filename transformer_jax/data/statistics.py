"""What a split holds and what was left out of it."""

from dataclasses import asdict, dataclass

import numpy as np

HISTOGRAM_EDGES = (0, 5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
BAR_CHARACTERS = 30


@dataclass(frozen=True)
class StoreStatistics:
    """Counts of a token store. Lengths are in tokens, EOS included; ``dropped`` is pairs by reason, of ``read`` pairs."""

    split: str
    read: int
    kept: int
    dropped: dict[str, int]
    source_tokens: int
    target_tokens: int
    source_unknown: int
    target_unknown: int
    longest_source: int
    longest_target: int
    target_histogram: dict[str, int]

    def to_json(self) -> dict[str, object]:
        """The fields, as what ``json.dumps`` takes."""
        return asdict(self)

    def table(self) -> str:
        """The counts as plain text."""
        share = 100 / max(self.kept, 1)
        lines = [f"{self.split}: {self.kept:,} pairs of {self.read:,}"]
        lines += [f"  left out: {count:,} of {self.read:,}, {reason}" for reason, count in self.dropped.items() if count]
        for side, tokens, unknown, longest in (
            ("source", self.source_tokens, self.source_unknown, self.longest_source),
            ("target", self.target_tokens, self.target_unknown, self.longest_target),
        ):
            mean = tokens / max(self.kept, 1)
            lines.append(f"  {side}: {tokens:,} tokens, {mean:.1f} a sentence, at most {longest}, unknown {unknown:,}")
        tallest = max(self.target_histogram.values(), default=1) or 1
        for label, count in self.target_histogram.items():
            if count:
                bar = "#" * max(1, round(BAR_CHARACTERS * count / tallest))
                lines.append(f"  target tokens {label:>9}: {bar} {count * share:.1f} %")
        return "\n".join(lines)


def length_histogram(lengths: np.ndarray) -> dict[str, int]:
    """How many lengths fall between the edges: ``{"1-5": 2, "6-10": 7, ...}``."""
    edges = [*HISTOGRAM_EDGES, np.inf]
    counts = np.histogram(lengths, bins=np.array(edges) + 0.5)[0]
    labels = [
        f"{low + 1}-{high}" if high != np.inf else f"above {low}" for low, high in zip(edges, edges[1:], strict=False)
    ]
    return dict(zip(labels, map(int, counts), strict=True))
