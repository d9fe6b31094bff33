"""Masks as matrices of 0 and 1."""

import jax.numpy as jnp
import numpy as np

from transformer_jax.layers.masks import SentenceMask, causal_mask, with_own_slots, segment_mask


def test_causal():
    np.testing.assert_array_equal(causal_mask(3)[0], [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_segments_see_their_own_sentence_and_never_padding():
    mask = segment_mask(jnp.array([[1, 1, 2, 0]]), jnp.array([[1, 2, 2, 0]]))
    np.testing.assert_array_equal(mask[0], [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])


def test_causal_inside_sentences():
    segments = jnp.array([[1, 1, 2, 0]])
    mask = SentenceMask(segments, segments, is_causal=True).array()
    np.testing.assert_array_equal(mask[0], [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def test_prefix():
    np.testing.assert_array_equal(with_own_slots(jnp.int32(1), 4), [[[1, 1, 0, 0]]])
