import json
import math

import pytest

from transformer_jax.config import DecodingConfig
from transformer_jax.evaluation import EvaluationReport, perplexity, score_translations
from transformer_jax.evaluation.text_table import text_table


def make_report(**changes) -> EvaluationReport:
    settings = {
        "split": "test",
        "scores": score_translations(["Ein Haus."], ["Ein Haus."]),
        "loss": 1.5,
        "perplexity": perplexity(15.0, 10),
        "tokens_per_second": 1234.5,
        "num_sentences": 1,
        "decoding": DecodingConfig(),
        "compute_dtype": "bfloat16",
    }
    return EvaluationReport(**(settings | changes))


def test_perplexity_is_the_exponential_of_the_mean():
    assert perplexity(10 * math.log(7), 10) == pytest.approx(7)
    assert perplexity(0.0, 3) == 1
    assert perplexity(1e6, 1) == math.inf
    with pytest.raises(ValueError, match="0 tokens"):
        perplexity(1.0, 0)


def test_report_as_json():
    record = json.loads(json.dumps(make_report().to_json()))
    assert record["scores"]["bleu_signature"].startswith("nrefs:1")
    assert record["decoding"]["beam_width"] == 4
    assert record["perplexity"] == pytest.approx(math.exp(1.5))


def test_report_as_table():
    table = text_table(make_report().rows())
    for words in ("BLEU", "chrF", "4.482", "1,23", "beam 4, length penalty 0.6", "bfloat16"):
        assert words in table
    assert "greedy" in text_table(make_report(decoding=DecodingConfig(beam_width=1)).rows())


def test_text_table_is_aligned():
    assert text_table([("BLEU", "41.02", "cased"), ("chrF", "9.10", "")]) == "BLEU  41.02  cased\nchrF   9.10"
    assert text_table([]) == ""
