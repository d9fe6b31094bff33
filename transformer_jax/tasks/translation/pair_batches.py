"""Pairs of sentences given as text, for one teacher-forced pass: tokens, their numbers, and batches."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data.batches import scoring_rows, token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.sources import require_translatable

TokenIds = list[list[int]]


class EncodedPairs(NamedTuple):
    """Tokens of every sentence, EOS included; sentence i of each side is pair i."""

    sources: TokenIds
    targets: TokenIds

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of tokens of the sources and of the targets."""
        return np.array([*map(len, self.sources)], np.int64), np.array([*map(len, self.targets)], np.int64)

    def batches(self, batch_tokens: int, row_multiple: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """The pairs of a batch, a pair a row, and the batch; every pair once, the longest first."""
        lengths = self.lengths
        for shape, pairs, offsets in scoring_rows(*lengths, batch_tokens, row_multiple):
            sides = (
                token_rows(joined([side[pair] for pair in pairs]), offsets, width)
                for side, width in zip(self, shape[1:], strict=True)
            )
            yield pairs, Batch(*sides)


def encode_pairs(
    tokenizers: TokenizerPair, sources: Sequence[str], targets: Sequence[str], max_tokens: int
) -> EncodedPairs:
    """The tokens of both sides. Raises DataError when their numbers differ or a sentence has more than ``max_tokens``."""
    if len(sources) != len(targets):
        raise DataError(
            f"{len(sources)} source sentences but {len(targets)} target sentences; line i of each is a pair"
        )
    sides = zip((tokenizers.source, tokenizers.target), (sources, targets), strict=True)
    pairs = EncodedPairs(
        *([[*ids, EOS_ID] for ids in tokenizer.encode_batch(list(texts))] for tokenizer, texts in sides)
    )
    require_translatable(np.maximum(*pairs.lengths), max_tokens, "pair")
    return pairs
