"""Language models as GPT-2 of the library transformers, both ways."""

from dataclasses import replace

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import TEXTS

from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.tools.interop import hugging_face
from transformer_jax.tools.interop.formats import open_counterpart
from transformer_jax.tools.interop.imported_model import ImportedModel
from transformer_jax.tools.interop.parity import compare

library("torch", "export")
library("transformers", "export")

SMALL = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "max_positions": 80, "attention": "biased"}


def language_model(**model):
    settings = {
        "task": "language_model",
        "tokenizer": {"kind": "byte", "vocabulary_size": 260},
        "model": SMALL | {"embedding": "unscaled"} | model,
        "batching": {"context_length": 80, "tokens_per_update": 1280},
        "decoding": {"max_new_tokens": 8},
    }
    made = ImportedModel(from_dict(settings), TokenizerPair(*[ByteTokenizer()] * 2), {})
    draw = np.random.default_rng(0)
    return replace(
        made, named={name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in made.shapes().items()}
    )


def exported(folder, **model):
    made = language_model(**model)
    hugging_face.export(made.opened(), folder)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"embedding": "scaled", "attention": "multi_head"}])
def test_their_library_computes_the_same(settings, tmp_path):
    model = exported(tmp_path, **settings).opened()
    # The last is longer than a power of two, and as long as the positions.
    found = compare(model, open_counterpart(tmp_path, model), [*TEXTS, "a" * 79])
    assert found.holds, found.rows()
    assert found.longest == 80
    assert found.divergences is None


@pytest.mark.parametrize(
    "settings", [{"tying": "output"}, {"tying": "none", "attention": "multi_head", "feed_forward": "relu"}]
)
def test_a_model_comes_back_bit_for_bit(settings, tmp_path):
    made = exported(tmp_path, **settings)
    found = hugging_face.read(tmp_path)
    assert found.config.model == made.config.model
    assert {name: leaf.tobytes() for name, leaf in found.named.items()} == {
        name: leaf.tobytes() for name, leaf in made.named.items()
    }
    assert found.shapes() == made.shapes()


def test_what_gpt2_lacks_is_named(tmp_path):
    for settings in (
        {"normalization": "post"},
        {"positions": "sinusoidal"},
        {"feed_forward": "gated_silu"},
        {"logits_bias": True},
        {"projection": "soft_capped"},
    ):
        with pytest.raises(ConfigError, match=rf"model.{next(iter(settings))}: .* GPT-2"):
            exported(tmp_path, **settings)
    exported(tmp_path)
    described = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(described.replace('"n_embd": 16', '"n_embd": 32'))
    with pytest.raises(DataError, match=r"has shape \(16,\), expected \(32,\)"):
        hugging_face.read(tmp_path)
    (tmp_path / "tokenizer").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="GPT-2's own .vocab.json, merges.txt. is not supported"):
        hugging_face.read(tmp_path)
