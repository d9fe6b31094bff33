"""Rollout of attention through the layers; readings that are not finite are refused; arrays packed
for the page."""

from dataclasses import replace

import numpy as np
import pytest
from tools.explorer.made_readings import made_reading

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.page import Page, RunName, quantized
from transformer_jax.tools.explorer.readings import AttentionReading, Reading, decoder_rollout, opening, rollout


def random_weights(rng, *shape):
    weights = rng.uniform(0.1, 1, shape)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_layers_are_half_attention_half_residual_and_multiply_the_last_one_first():
    first, second = random_weights(np.random.default_rng(0), 2, 1, 3, 3)
    mixed = [(weights[0] + np.eye(3)) / 2 for weights in (first, second)]
    np.testing.assert_allclose(rollout(np.stack([first, second])), [mixed[0], mixed[1] @ mixed[0]])


def test_a_decoder_divides_its_attention_between_both_sides():
    rng = np.random.default_rng(1)
    to_self, cross = random_weights(rng, 3, 2, 4, 4), random_weights(rng, 3, 2, 4, 5)
    source = random_weights(rng, 5, 5)
    to_target, to_source = decoder_rollout(to_self, cross, source)
    np.testing.assert_allclose(to_target.sum(axis=-1) + to_source.sum(axis=-1), 1.0)
    np.testing.assert_allclose(to_source[0], cross[0].mean(axis=0) @ source / 2)
    np.testing.assert_allclose(to_target[0], (to_self[0].mean(axis=0) + np.eye(4)) / 4)


def test_the_page_opens_on_the_attention_that_is_nearest_to_an_alignment_of_words():
    weights = np.full((2, 2, 5, 5), 0.2)
    weights[0, 0] = np.eye(5)[[0, 0, 0, 3, 4]]  # Sharp, but all words read the same one.
    # Sharp, but it reads the full stop and the end of the sentence.
    weights[0, 1] = np.eye(5)[[3, 4, 3, 2, 1]]
    weights[1, 1] = 0.7 * np.eye(5)[[1, 0, 2, 3, 4]] + 0.3 / 5
    tokens = {"source": ["a", "b", "c", ".", "</s>"], "target": ["A", "B", "C", ".", "</s>"]}
    tokens["input"] = ["<s>", *tokens["target"][:-1]]
    empty = np.zeros(0)
    cross = AttentionReading("cross", "target", "source", weights, empty, empty)
    decoder = AttentionReading("decoder", "target", "input", weights, empty, empty)
    assert opening(Reading("a b c.", "A B C.", tokens, [decoder, cross])) == {
        **{"kind": "cross", "layer": 2, "head": 2},
        "why": "of 4 heads the nearest to a word alignment",
    }
    without_source = Reading("A B C.", None, tokens, [decoder])
    assert opening(without_source) == {"kind": "decoder", "layer": 2, "head": 0}, "all heads of the last layer"
    assert opening(Reading("", None, tokens, [])) == {}


def test_errors_of_packed_numbers_are_at_most_what_the_docstring_says():
    assert quantized(np.array([-2.0, -0.5, 0.0, 2.0]))[0].tolist() == [1, 64, 128, 255]
    assert quantized(np.array([0.0625]), 0.25) == (np.array([128]), 0.25)
    rng = np.random.default_rng(0)
    for values, count in ((rng.uniform(0, 1, 500) ** 4, 255), (rng.standard_normal(500), 127)):
        steps, largest = quantized(values)
        whole = steps.astype(float) if count == 255 else steps.astype(float) - 128
        restored = np.sign(whole) * largest * (whole / count) ** 2
        bound = np.sqrt(np.abs(values) * largest) / count + largest / (4 * count**2)
        assert (np.abs(restored - values) <= bound + 1e-12).all()


def test_a_reading_that_is_not_finite_is_refused_by_name():
    reading = made_reading(["a", "</s>"], ["b", "</s>"])
    page = Page("page", [RunName("broken", "update 1")])
    reading.attentions[1].weights[0, 0, 1, 1] = np.nan
    for broken in (reading, replace(reading, attentions=[], log_probs=[np.inf])):
        with pytest.raises(DataError, match="text 1, 'a </s>': NaN or infinity in the model of broken"):
            page.add_reading(broken, text=0, run=0)
