"""Given pairs of texts as batches, in few static shapes, a pair a row."""

from collections.abc import Iterator, Sequence

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data.batch_arrays import token_rows
from transformer_jax.data.evaluation_batches import scoring_rows
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.pair_encoding import Sentences
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.translator import require_translatable

EncodedSides = tuple[list[list[int]], list[list[int]]]


def encoded_pairs(
    tokenizers: TokenizerPair, sources: Sequence[str], targets: Sequence[str], max_tokens: int
) -> EncodedSides:
    """Token ids of both sides, EOS included.

    Raises DataError when the numbers of sentences differ, or one has more than ``max_tokens``.
    """
    if len(sources) != len(targets):
        raise DataError(
            f"{len(sources)} source sentences but {len(targets)} target sentences; line i of each is a pair"
        )
    source, target = (
        [[*ids, EOS_ID] for ids in tokenizer.encode_batch(list(texts))]
        for tokenizer, texts in ((tokenizers.source, sources), (tokenizers.target, targets))
    )
    require_translatable(np.maximum(*_lengths((source, target))), max_tokens, "pair")
    return source, target


def pair_batches(sides: EncodedSides, batch_tokens: int, row_multiple: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """The numbers of the pairs of a batch, and the batch; longest first."""
    lengths = _lengths(sides)
    for shape, pairs, offsets in scoring_rows(lengths[0], lengths[1], batch_tokens, row_multiple):
        source, target = (
            token_rows(
                Sentences(np.array([token for pair in pairs for token in side[pair]], np.int32), length[pairs]),
                offsets,
                width,
            )
            for side, length, width in zip(sides, lengths, shape[1:], strict=True)
        )
        yield pairs, Batch(source, target)


def _lengths(sides: EncodedSides) -> tuple[np.ndarray, np.ndarray]:
    source, target = (np.array([len(ids) for ids in side], np.int64) for side in sides)
    return source, target
