"""Decoding that begins with given tokens, each with the probability that the model gives it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PAD_ID, Array, Float, Int
from transformer_jax.decoding.beam_search import StepFunction
from transformer_jax.sequence_types import DecodeCache

# So rare that it changes no sum; its logarithm is finite.
SMALLEST = 1e-30


def cache_with_prefixes(cache: DecodeCache, prefixes: Int[Array, "B P"]) -> DecodeCache:
    """The cache for a decoding with ``step_after_prefix``: PAD follows prefixes that are shorter than others."""
    return DecodeCache((cache.per_beam, jnp.zeros((), jnp.int32)), (cache.per_sentence, prefixes), cache.slots)


def step_after_prefix(step: StepFunction) -> StepFunction:
    """``step``, after which only the next token of the prefix can be chosen, while there is one.

    Its probability is the model's; the rest falls to PAD, which no search chooses.
    """

    def forced(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Float[Array, "B W V"], DecodeCache]:
        (inner, position), (shared, prefixes) = cache.per_beam, cache.per_sentence
        logits, after = step(token_ids, DecodeCache(inner, shared, cache.slots))
        log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
        width = prefixes.shape[1]
        wanted = jnp.where(position < width, prefixes[:, jnp.minimum(position, width - 1)], PAD_ID)[:, None, None]
        tokens = jnp.arange(logits.shape[-1])[None, None, :]
        own = jnp.max(jnp.where(tokens == wanted, log_probs, -jnp.inf), axis=-1, keepdims=True)
        rest = jnp.log(jnp.maximum(-jnp.expm1(own), SMALLEST))
        only = jnp.where(tokens == wanted, own, jnp.where(tokens == PAD_ID, rest, -jnp.inf))
        logits = jnp.where(wanted == PAD_ID, log_probs, only)
        return logits, DecodeCache((after.per_beam, position + 1), cache.per_sentence, after.slots)

    return forced


def padded_prefixes(prefixes: Sequence[Sequence[int]], num_rows: int, width: int) -> np.ndarray:
    """Rows that begin together: int32 ``[num_rows, width]``, PAD on the right, and rows of PAD after them."""
    ids = np.full((num_rows, width), PAD_ID, np.int32)
    for row, tokens in enumerate(prefixes):
        ids[row, : len(tokens)] = tokens
    return ids
