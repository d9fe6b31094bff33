"""M2M-100 models of the library transformers, read for one pair of languages."""

import pytest
from libraries import library
from tools.interop.m2m_models import save_m2m
from tools.interop.small_models import TEXTS, opened

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.tools.interop import hugging_face
from transformer_jax.tools.interop.formats import format_module, open_counterpart
from transformer_jax.tools.interop.parity import compare

library("torch", "export")
library("sentencepiece")
LANGUAGES = {"source_language": "en", "target_language": "de"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m2m")
    save_m2m(folder)
    return folder


@pytest.mark.slow
def test_a_model_of_theirs_computes_the_same_here(theirs):
    model = opened(hugging_face.read(theirs, **LANGUAGES))
    source, target = model.tokenizers
    assert source.pieces(source.encode("a"))[0] == "__en__"
    assert target.pieces(target.encode("a"))[0] == "__de__"
    found = compare(model, open_counterpart(theirs, model), TEXTS)
    assert found.holds, found.rows()
    assert found.largest < 2e-5
    # Every translation begins with the token of its language, which is no part of its text.
    (example,) = model.examples(TEXTS[:1])
    assert target.pieces(example.target)[0] == "__de__"
    assert "__de__" not in target.decode(example.target)


@pytest.mark.slow
def test_a_model_read_goes_on_to_ctranslate2(theirs, tmp_path):
    library("ctranslate2", "export")
    model = opened(hugging_face.read(theirs, **LANGUAGES))
    format_module("ctranslate2").export(model, tmp_path)
    assert (tmp_path / "source.spm").is_file()
    found = compare(model, open_counterpart(tmp_path, model), TEXTS)
    assert found.holds, found.rows()
    assert not found.divergences


def test_languages_are_asked_for_and_known(theirs, tmp_path, capsys):
    with pytest.raises(ConfigError, match="--target_language: 'tlh' is not a language of this model; it has af, am, "):
        hugging_face.read(theirs, **LANGUAGES | {"target_language": "tlh"})
    command = ["import", "--format=huggingface", f"--input={theirs}", f"--workdir={tmp_path}/run"]
    assert main([*command, "--source_language=en"]) == 2
    assert "--target_language: '' is not a language of this model" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
