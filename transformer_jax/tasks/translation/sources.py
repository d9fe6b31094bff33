"""Source sentences as tokens; those that are too long are refused before anything is computed."""

from collections.abc import Sequence

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import Tokenizer


class SentenceTooLong(DataError):
    """A sentence has more tokens than allowed; ``index`` is its place in the list, from 0."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def encode_sources(
    tokenizer: Tokenizer, sentences: Sequence[str], limit: int, name: str, first: int
) -> tuple[list[int], list[list[int]]]:
    """The places of the sentences that are not empty or nothing but white space, and their tokens with EOS.

    Raises SentenceTooLong as ``require_translatable`` does.
    """
    asked = [index for index, sentence in enumerate(sentences) if sentence.strip()]
    sources = [[*ids, EOS_ID] for ids in tokenizer.encode_batch([sentences[index] for index in asked])]
    lengths = np.zeros(len(sentences), np.int64)
    lengths[asked] = [len(ids) for ids in sources]
    require_translatable(lengths, limit, name, first)
    return asked, sources


def require_translatable(lengths: np.ndarray, limit: int, name: str, first: int = 1) -> None:
    """Raises SentenceTooLong, naming the first, when a sentence has more than ``limit`` tokens; lengths count EOS."""
    too_long = np.flatnonzero(lengths > limit + 1)
    if len(too_long):
        index = int(too_long[0])
        raise SentenceTooLong(
            f"{name} {index + first}: {lengths[index] - 1:,} tokens are more than decoding.max_source_tokens={limit}; "
            "split it, or raise that where memory suffices for its square",
            index,
        )
