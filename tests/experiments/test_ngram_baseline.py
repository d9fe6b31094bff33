"""The baselines of the language model: what they count."""

import importlib
import math
from pathlib import Path

import pytest

from transformer_jax.data.documents import NamedTexts
from transformer_jax.data.tokenizers.listed import ByteTokenizer

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "language_model"


@pytest.fixture
def baseline(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ngram_baseline")


@pytest.fixture
def source(tmp_path):
    lines = [f"line {index} of some text that repeats itself, {index * 7919 % 1000}" for index in range(2000)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return NamedTexts({"train": str(tmp_path / "text.txt")}, "lines", 0.05)


def test_xz_is_better_after_text_like_it(baseline, source):
    bits = baseline.xz_bits(source)
    size = sum(document.num_bytes for document in source.documents("validation"))
    alone, after, whole = bits.values()
    assert 0 < after < alone < 8 * size
    assert whole == pytest.approx(after, rel=0.05)


def test_every_token_of_the_held_out_text_is_a_word(baseline, source):
    lines = list(baseline.token_lines(source, "validation", ByteTokenizer()))
    texts = [document.text for document in source.documents("validation")]
    assert len(lines) == len(texts)
    assert [ByteTokenizer().decode(list(map(int, line.split()))) for line in lines] == texts


def test_unigrams_of_a_model_file(baseline, tmp_path):
    (tmp_path / "model.arpa").write_text(
        "\\data\\\nngram 1=4\n\n\\1-grams:\n-2.0\t<unk>\n0\t<s>\n-0.5\t</s>\n-0.3\t17\n\n\\end\\\n"
    )
    score = baseline.unigram_score(tmp_path / "model.arpa")
    assert math.isclose(score("17 17 99"), -0.3 - 0.3 - 2.0 - 0.5)


def test_the_table_has_the_worst_first(baseline):
    results = {"bits per byte": {"a": 1.0, "b": 2.0}}
    assert baseline.table(results).split("\n")[2:4] == ["| b | 2.0000 |", "| a | 1.0000 |"]
