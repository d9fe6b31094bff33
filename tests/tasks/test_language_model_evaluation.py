"""The numbers of an evaluation, from its sums."""

import json
import math

import pytest

from transformer_jax.evaluation.text_table import text_table
from transformer_jax.tasks.language_model.evaluation import LanguageModelEvaluation

FOUND = LanguageModelEvaluation(
    "validation", 80 * math.log(2), 5.0, 20, num_bytes=40, documents=3, context_length=32, stride=32
)


def test_each_number_is_one_division_of_sums():
    expected = {"loss": 4 * math.log(2), "perplexity": 16, "bits_per_byte": 2, "accuracy": 0.25}
    assert FOUND.metrics == pytest.approx(expected)
    assert FOUND.summary == "2.0000 bits per byte, perplexity 16.000"
    assert "3 documents, 40 bytes, 20 tokens" in text_table(FOUND.rows())
    assert json.loads(json.dumps(FOUND.to_json()))["num_bytes"] == 40


def test_what_is_not_finite_becomes_null():
    diverged = LanguageModelEvaluation("test", math.inf, 0.0, 20, 40, 3, 32, 8)
    assert diverged.to_json()["perplexity"] is None
    assert "8 of them new" in text_table(diverged.rows())
