"""Masks of padded and packed rows, literally."""

import numpy as np

from transformer_jax.tools.pictures.masks import padded_and_packed, row_masks

PAIRS = [([5, 2], [7, 8, 2]), ([6, 6, 2], [9, 2]), ([4, 4, 4, 2], [4, 4, 4, 2])]


def drawn(mask):
    return ["".join(".x"[int(cell)] for cell in row) for row in mask]


def test_a_pair_a_row_is_padded_to_the_longest():
    masks = row_masks(padded_and_packed(PAIRS)[0])
    assert drawn(masks.encoder) == ["xx..", "xx..", "....", "...."]
    assert drawn(masks.decoder) == ["x...", "xx..", "xxx.", "...."]
    assert drawn(masks.cross) == ["xx..", "xx..", "xx..", "...."]


def test_packed_pairs_do_not_see_each_other():
    packed = padded_and_packed(PAIRS)[1]
    masks = row_masks(packed)
    assert drawn(masks.encoder) == ["xx...", "xx...", "..xxx", "..xxx", "..xxx"]
    assert drawn(masks.decoder) == ["x....", "xx...", "xxx..", "...x.", "...xx"]
    assert drawn(masks.cross) == ["xx...", "xx...", "xx...", "..xxx", "..xxx"]
    np.testing.assert_array_equal(packed.target.positions, [[0, 1, 2, 0, 1]])
