"""Which training pairs are left out, and why: counted, never silent. Validation and test have no filters."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.config import DataConfig

# A "line" of a megabyte is not a sentence; some subword models need quadratic time to say so.
MAX_LINE_CHARACTERS = 100_000
GENERATED = ("grammar", "copy", "reverse")


class EncodedPair(NamedTuple):
    """Texts and token ids (without EOS) of a pair; the ids of an overlong line are empty."""

    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]


Filter = Callable[[EncodedPair], bool]
"""True for a pair that is to be left out."""


def training_filters(config: DataConfig) -> dict[str, Filter]:
    """The filters of the training split by the reason they stand for; the first that applies is the one that counts."""
    filters: dict[str, Filter] = {
        f"a line above {MAX_LINE_CHARACTERS:,} characters": is_overlong,
        "empty source": lambda pair: not pair.source.strip(),
        "empty target": lambda pair: not pair.target.strip(),
    }
    if config.source not in GENERATED:
        filters["target is the source"] = lambda pair: pair.source == pair.target
    return filters | {
        f"source above {config.max_source_tokens} tokens": lambda pair: len(pair.source_ids) > config.max_source_tokens,
        f"target above {config.max_target_tokens} tokens": lambda pair: len(pair.target_ids) > config.max_target_tokens,
        f"one side above {config.max_length_ratio:g} times the other": lambda pair: (
            max(len(pair.source_ids), len(pair.target_ids)) + 1
            > config.max_length_ratio * (min(len(pair.source_ids), len(pair.target_ids)) + 1)
        ),
    }


def is_overlong(pair: EncodedPair) -> bool:
    """Whether a side is so long that it was not even tokenised."""
    return max(len(pair.source), len(pair.target)) > MAX_LINE_CHARACTERS
