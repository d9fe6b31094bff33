import base64
import zlib
from dataclasses import replace

import numpy as np
import pytest
from tools.explorer.made_readings import made_reading

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.packing import Blocks, quantized
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.reading import NamedArray


def test_literal_steps():
    steps, largest = quantized(np.array([0.0, 0.25, 1.0]) * 0.5)
    assert (steps.tolist(), largest) == ([0, 128, 255], 0.5)
    steps, largest = quantized(np.array([-2.0, -0.5, 0.0, 2.0]))
    assert (steps.tolist(), largest) == ([1, 64, 128, 255], 2.0)
    assert quantized(np.array([0.0625]), 0.25) == (np.array([128]), 0.25)
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


def test_a_reading_that_is_not_finite_is_refused_by_name():
    reading = made_reading(["a", "</s>"], ["b", "</s>"])
    reading.attentions[1].weights.values[0, 0, 1, 1] = np.nan
    page = Page("page", [RunName("broken", "update 1")])
    with pytest.raises(DataError, match="text 1, 'a </s>': NaN or infinity in the model of broken"):
        page.add_reading(reading, text=0, run=0)
    reading = made_reading(["a", "</s>"], ["b", "</s>"])
    page.add_reading(replace(reading, log_probs=[-0.5, -1.0]), text=0, run=0)
    assert "NaN" not in page.html().split('id="data">')[1].split("</script>")[0]
