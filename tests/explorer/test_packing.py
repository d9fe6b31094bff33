import base64
import zlib

import numpy as np
import pytest

from transformer_jax.explorer.packing import Blocks, quantized
from transformer_jax.explorer.reading import NamedArray


def test_literal_steps():
    steps, largest = quantized(np.array([0.0, 0.25, 1.0]) * 0.5)
    assert (steps.tolist(), largest) == ([0, 128, 255], 0.5)
    steps, largest = quantized(np.array([-2.0, -0.5, 0.0, 2.0]))
    assert (steps.tolist(), largest) == ([1, 64, 128, 255], 2.0)
    assert quantized(np.zeros(2))[0].tolist() == [0, 0]


def test_errors_are_at_most_what_the_docstring_says():
    rng = np.random.default_rng(0)
    for values, count in ((rng.uniform(0, 1, 5000) ** 4, 255), (rng.standard_normal(5000), 127)):
        steps, largest = quantized(values)
        whole = steps.astype(float) if count == 255 else steps.astype(float) - 128
        restored = np.sign(whole) * largest * (whole / count) ** 2
        bound = np.sqrt(np.abs(values) * largest) / count + largest / (4 * count**2)
        assert (np.abs(restored - values) <= bound + 1e-12).all()
        assert np.abs(restored - values).max() > 0


def test_every_layer_is_a_block_of_its_own():
    blocks = Blocks()
    values = np.arange(12, dtype=float).reshape(2, 2, 3)
    first, second = blocks.add_layers(NamedArray(("layer", "target", "source"), values))
    assert first["axes"] == ["target", "source"] and first["shape"] == [2, 3]
    assert (first["largest"], second["largest"], second["block"]) == (5.0, 11.0, 1)
    unpacked = np.frombuffer(zlib.decompress(base64.b64decode(blocks.packed[1])), np.uint8)
    assert unpacked.tolist() == quantized(values[1])[0].ravel().tolist()


def test_axes_must_fit():
    with pytest.raises(ValueError, match="do not fit"):
        NamedArray(("layer",), np.zeros((2, 2)))
