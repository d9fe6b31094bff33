"""Models of the library transformers, both ways: Marian, M2M-100, GPT-2."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from libraries import library
from tools.interop import small_models
from tools.interop.small_models import TEXTS, THEIRS, assert_same_parameters, small_model, tokenizers

from transformer_jax.__main__ import main
from transformer_jax.array_types import NUM_SPECIAL_IDS
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.tools.interop import ctranslate2, hugging_face
from transformer_jax.tools.interop.interop_commands import open_counterpart
from transformer_jax.tools.interop.models import ImportedModel
from transformer_jax.tools.interop.parity import compare
from transformer_jax.tools.interop.weight_files import load_tensors_only

torch, transformers = library("torch", "export"), library("transformers", "export")

LANGUAGES = {"source_language": "en", "target_language": "de"}


def save(folder, model, vocabulary, pad_row=None):
    """Saved by the library's own ``save_pretrained``, with random biases."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name:
                tensor.add_(torch.randn(tensor.shape) * 0.2)
        if pad_row is not None:
            model.get_decoder().embed_tokens.weight[pad_row] = 0
    model.eval().save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))


def learned_pieces():
    tokenizer = tokenizers().source
    return tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    """A Marian model with the special ids of OPUS-MT: EOS 0, UNK 1, PAD last, which begins
    decoding."""
    folder = tmp_path_factory.mktemp("opus")
    vocabulary = ["</s>", "<unk>", *learned_pieces(), "<pad>"]
    pad = len(vocabulary) - 1
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    settings = {"activation_function": "swish", "scale_embedding": True, "dropout": 0.3, "activation_dropout": 0.2}
    torch.manual_seed(0)
    config = transformers.MarianConfig(vocab_size=len(vocabulary), **special, **THEIRS, **settings)
    save(folder, transformers.MarianMTModel(config), vocabulary, pad)
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(tokenizers().source.to_bytes())
    (folder / "tokenizer_config.json").write_text('{"source_lang": "eng", "target_lang": "deu"}')
    return folder


@pytest.fixture(scope="module")
def m2m(tmp_path_factory):
    """An M2M-100 model with a hundred languages, and eight made-up ids."""
    folder = tmp_path_factory.mktemp("m2m")
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *learned_pieces()]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (folder / "sentencepiece.bpe.model").write_bytes(tokenizers().source.to_bytes())
    tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.M2M100Config(vocab_size=len(vocabulary) + len(tokenizer.lang_token_to_id) + 8, **THEIRS)
    save(folder, transformers.M2M100ForConditionalGeneration(config), vocabulary)
    return folder


def byte_language_model(**model):
    model = {"attention": "biased", "embedding": "unscaled"} | model
    settings = {
        "task": "language_model",
        "tokenizer": {"kind": "byte", "vocabulary_size": 260},
        "model": {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "max_positions": 80} | model,
        "batching": {"context_length": 80, "tokens_per_update": 1280},
        "decoding": {"max_new_tokens": 8},
    }
    model_here = ImportedModel(from_dict(settings), TokenizerPair(ByteTokenizer(), ByteTokenizer()), {})
    return small_models.with_random_parameters(model_here)


def assert_same_outputs(model, folder, texts=TEXTS, bound=2e-5):
    comparison = compare(model, open_counterpart(folder, model), texts)
    assert comparison.holds and comparison.largest < bound, comparison.rows()
    return comparison


def test_a_marian_model_of_theirs_computes_the_same_here(opus):
    read = hugging_face.read(opus)
    model, data = read.config.model, read.config.data
    assert (model.attention, model.logits_bias, model.dropout, model.activation_dropout) == ("biased", True, 0.3, 0.2)
    assert (data.source_language, data.target_language) == ("eng", "deu")
    assert ("tokenized alike", 3, 3) in assert_same_outputs(read.opened(), opus).checks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (small_model, {"norm_epsilon": 1e-5, "feed_forward": "gelu"}),
        (byte_language_model, {}),
        (byte_language_model, {"embedding": "scaled", "attention": "multi_head"}),
    ],
)
def test_a_model_of_ours_computes_the_same_there(make, settings, tmp_path):
    model = make(**settings).opened()
    hugging_face.export(model, tmp_path)
    if model.translates:
        assert ("tokenized alike", 3, 3) in assert_same_outputs(model, tmp_path).checks
    else:
        # The last is longer than a power of two, and as long as the positions.
        comparison = assert_same_outputs(model, tmp_path, [*TEXTS, "a" * 79], bound=1e-4)
        assert (comparison.longest, comparison.divergences) == (80, None)


@pytest.mark.parametrize(
    "settings", [{"feed_forward": "gelu"}, {"tying": "output", "attention": "biased", "logits_bias": True}]
)
def test_a_model_comes_back_bit_for_bit(settings, tmp_path):
    small = small_model(norm_epsilon=1e-5, **settings)
    hugging_face.export(small.opened(), tmp_path)
    imported = hugging_face.read(tmp_path)
    assert_same_parameters(imported, small)
    assert imported.tokenizers.source.encode_batch(TEXTS) == small.tokenizers.source.encode_batch(TEXTS)


@pytest.mark.parametrize(
    ("make", "setting", "value"),
    [
        (small_model, "normalization", "pre"),
        (small_model, "norm_epsilon", 0.1),
        (byte_language_model, "positions", "sinusoidal"),
        (byte_language_model, "logits_bias", True),
        (byte_language_model, "projection", "soft_capped"),
    ],
)
def test_a_setting_that_they_lack_is_named(make, setting, value, tmp_path):
    with pytest.raises(ConfigError, match=f"model.{setting}: .* (Marian|GPT-2)"):
        hugging_face.export(make(**{setting: value}).opened(), tmp_path)


UNREADABLE = [
    ({"model_type": "bart"}, "model_type='bart' is not one of marian, m2m_100"),
    ({"normalize_before": True}, "config.json: normalize_before=True is not supported; expected False"),
    ({"encoder_layers": 3}, "tensors are missing: encoder.layers.2"),
    ({"encoder_ffn_dim": 32, "decoder_ffn_dim": 32}, "fc2.weight has shape (16, 24), expected (16, 32)"),
    ({"d_model": None}, "config.json: d_model=None is not of type int"),
    ({"vocab_size": 390}, "vocab.json: 399 pieces, but config.json has 390"),
]


def test_what_cannot_be_read_is_named_and_nothing_is_written(opus, tmp_path, capsys):
    folder = tmp_path / "theirs"
    folder.mkdir()

    def problem():
        assert main(["import", "--format=huggingface", f"--input={folder}", f"--workdir={tmp_path}/run"]) == 2
        assert [entry.name for entry in tmp_path.iterdir()] == ["theirs"]
        return capsys.readouterr().err

    assert "config.json: No such file" in problem()
    for name in ("vocab.json", "source.spm", "target.spm", "model.safetensors"):
        (folder / name).symlink_to(opus / name)
    described = json.loads((opus / "config.json").read_text())
    for settings, message in UNREADABLE:
        (folder / "config.json").write_text(json.dumps(described | settings))
        assert message in problem()
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "model.safetensors").unlink()
    assert "neither model.safetensors nor pytorch_model.bin" in problem()


def test_a_pickle_that_could_run_code_is_refused(tmp_path):
    torch.save({"model": Path}, tmp_path / "strange.pt")
    with pytest.raises(DataError, match=r"strange.pt: .* has other objects than tensors"):
        load_tensors_only(tmp_path / "strange.pt")
    torch.save({"weight": torch.ones(2)}, tmp_path / "plain.pt")
    np.testing.assert_array_equal(load_tensors_only(tmp_path / "plain.pt")["weight"], np.ones(2))


@pytest.mark.slow
def test_m2m_computes_the_same_here_and_in_ctranslate2(m2m, tmp_path):
    library("ctranslate2", "export")
    model = hugging_face.read(m2m, **LANGUAGES).opened()
    source, target = model.tokenizers
    assert source.pieces(source.encode("a"))[0] == "__en__"
    assert_same_outputs(model, m2m)
    # Every translation begins with the token of its language, which is no part of its text.
    (example,) = model.examples(TEXTS[:1])
    assert target.pieces(example.target)[0] == "__de__"
    assert "__de__" not in target.decode(example.target)
    ctranslate2.export(model, tmp_path)
    assert (tmp_path / "source.spm").is_file()
    assert not assert_same_outputs(model, tmp_path).divergences


def test_languages_are_asked_for_and_known(m2m, tmp_path, capsys):
    # Before weights are read: there are none.
    folder = shutil.copytree(m2m, tmp_path / "m2m", ignore=shutil.ignore_patterns("model.safetensors"))
    with pytest.raises(ConfigError, match="--target_language: 'tlh' is not a language of this model; it has af, am, "):
        hugging_face.read(folder, **LANGUAGES | {"target_language": "tlh"})
    command = ["import", "--format=huggingface", f"--input={folder}", f"--workdir={tmp_path}/run"]
    assert main([*command, "--source_language=en"]) == 2
    assert "--target_language: '' is not a language of this model" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]
