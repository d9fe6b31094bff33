"""Prompts as rows that end together, and decoding that continues them."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PAD_ID, Array, Float, Int
from transformer_jax.decoding.beam_search import DecodeStep
from transformer_jax.sequence_types import DecodeCache


def left_padded(rows: Sequence[Sequence[int]], num_rows: int, width: int) -> np.ndarray:
    """Rows that end together: int32 ``[num_rows, width]``, PAD on the left, and rows of PAD after them.

    ``[[5, 6], [7]]`` in 3 rows of 3 is ``[[0, 5, 6], [0, 0, 7], [0, 0, 0]]``.
    """
    ids = np.full((num_rows, width), PAD_ID, np.int32)
    for row, tokens in enumerate(rows):
        ids[row, width - len(tokens) :] = tokens
    return ids


def cache_after_prompt(cache: DecodeCache, last_ids: Int[Array, "B"]) -> DecodeCache:
    """The cache for a decoding that continues prompts with ``step_after_prompt``.

    ``cache`` is that after all tokens of the prompts but the last, ``last_ids``.
    """
    return DecodeCache((cache.per_beam, jnp.ones((), bool)), (cache.per_sentence, last_ids), cache.kv_cache)


def step_after_prompt(step: DecodeStep) -> DecodeStep:
    """``step`` for a decoding that continues prompts: the first time it reads their last tokens instead of BOS."""

    def continued(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Float[Array, "B W V"], DecodeCache]:
        (inner, is_first), (shared, last_ids) = cache.per_beam, cache.per_sentence
        token_ids = jnp.where(is_first, last_ids[:, None], token_ids)
        logits, after = step(token_ids, DecodeCache(inner, shared, cache.kv_cache))
        return logits, DecodeCache((after.per_beam, jnp.zeros((), bool)), cache.per_sentence, after.kv_cache)

    return continued
