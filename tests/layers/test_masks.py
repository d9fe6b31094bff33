"""Masks as matrices of 0 and 1."""

import jax.numpy as jnp
import numpy as np

from transformer_jax.layers.masks import SentenceMask, segment_mask, with_written_slots


def test_segments_see_their_own_sentence_and_never_padding():
    mask = segment_mask(jnp.array([[1, 1, 2, 0]]), jnp.array([[1, 2, 2, 0]]))
    np.testing.assert_array_equal(mask[0], [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])


def test_causal_inside_sentences():
    segments = jnp.array([[1, 1, 2, 0]])
    mask = SentenceMask(segments, segments, is_causal=True).array()
    np.testing.assert_array_equal(mask[0], [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])


def test_a_beam_sees_the_slots_of_its_prefix_and_its_own():
    visible = jnp.array([[[1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]], bool)
    seen = with_written_slots(visible, jnp.int32(2))
    np.testing.assert_array_equal(seen, [[[1, 0, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]]])
