"""Windows of context words around the words of rows."""

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, PAD_ID, AnyArray, Array, Bool, Float, Int


def pair_mask(words: Int[AnyArray, "R J"], reach: Int[AnyArray, "R T"]) -> Bool[Array, "R T J"]:
    """Which of the words are context of which center; a window ends where its document ends."""
    length = reach.shape[1]
    margin = (words.shape[1] - length) // 2
    document = jnp.cumsum(words == EOS_ID, axis=1)
    is_word = (words != EOS_ID) & (words != PAD_ID)
    center = slice(margin, margin + length)
    distance = jnp.abs(jnp.arange(words.shape[1])[None] - margin - jnp.arange(length)[:, None])
    is_near = (distance > 0)[None] & (distance[None] <= reach[:, :, None])
    is_same = document[:, center, None] == document[:, None, :]
    return is_near & is_same & is_word[:, center, None] & is_word[:, None, :]


def window_limits(is_pair: Bool[AnyArray, "R T J"]) -> tuple[Int[Array, "R T"], Int[Array, "R T"]]:
    """The first and the last of the J places that belong to the window of a center, the center among them."""
    length, places = is_pair.shape[1:]
    center = jnp.arange(length) + (places - length) // 2
    is_before = jnp.arange(places)[None, None] < center[None, :, None]
    before = jnp.sum(is_pair & is_before, axis=2)
    return center[None] - before, center[None] + jnp.sum(is_pair & ~is_before, axis=2)


def window_means(
    is_pair: Bool[Array, "R T J"], contexts: Float[Array, "R J D"]
) -> tuple[Float[Array, "R T D"], Bool[Array, "R T"]]:
    """The mean vector of each window, and which windows have a word.

    As in word2vec.c each context word gets the whole gradient of the mean, not its share: words in short windows and long ones
    move alike. (Irsoy et al. 2021 discuss the difference.)
    """
    weights = jnp.asarray(is_pair, jnp.float32)
    counts = jnp.sum(weights, axis=2)
    return _window_means(weights, counts, contexts), counts > 0


@jax.custom_vjp
def _window_means(weights: Array, counts: Array, contexts: Array) -> Array:
    return jnp.einsum("rtj,rjd->rtd", weights, contexts) / jnp.maximum(counts, 1.0)[..., None]


def _window_means_forward(weights: Array, counts: Array, contexts: Array) -> tuple[Array, Array]:
    return _window_means(weights, counts, contexts), weights


def _window_means_backward(weights: Array, cotangent: Array) -> tuple[None, None, Array]:
    return None, None, jnp.einsum("rtj,rtd->rjd", weights, cotangent)


_window_means.defvjp(_window_means_forward, _window_means_backward)
