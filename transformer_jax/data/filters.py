"""Filters of training pairs: dropped pairs are counted by reason. Validation and test have no filters."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.config import DataConfig

# A line of a megabyte is not a sentence: it is counted without being tokenized.
MAX_LINE_BYTES = 1_000_000
# Sources where the target may equal the source.
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
    """The filters of the training split by the reason they stand for; the first that applies is the one that counts.

    Token limits do not count EOS; the length ratio does, so that one token against none has the ratio 2.
    """
    filters: dict[str, Filter] = {
        f"a line above {MAX_LINE_BYTES:,} bytes": lambda pair: is_overlong(pair.source) or is_overlong(pair.target),
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


def filter_settings(config: DataConfig) -> list[int | float | bool]:
    """The settings in ``config`` that determine which pairs are kept."""
    identical_allowed = config.source in GENERATED
    return [
        config.max_source_tokens,
        config.max_target_tokens,
        config.max_length_ratio,
        identical_allowed,
        MAX_LINE_BYTES,
    ]


def is_overlong(text: str) -> bool:
    """Whether a line has more than ``MAX_LINE_BYTES`` bytes of UTF-8."""
    if len(text) * 4 <= MAX_LINE_BYTES:
        return False
    return len(text.encode("utf-8", "surrogatepass")) > MAX_LINE_BYTES
