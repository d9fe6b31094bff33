"""Tiny models with random parameters; made in a second."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from transformer_jax.config import from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.tools.interop.models import ImportedModel

THEIRS = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
THEIRS |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SMALL = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
TEXTS = ["the dog sees a cat", "a bird sings", "the old man who reads a book sees the small red house , and sleeps"]


def small_settings(cache: Path = Path("unused"), **model: object) -> dict:
    """Settings of a translation with a joint vocabulary of 400 pieces."""
    lengths = {"max_source_tokens": 47, "max_target_tokens": 47}
    return {
        "data": {"generated_pairs": 300, "cache_directory": str(cache), **lengths},
        "tokenizer": {"kind": "bpe", "vocabulary_size": 400},
        "batching": {"tokens_per_update": 512},
        "model": SMALL | model,
        "decoding": {"max_extra_tokens": 4},
    }


@cache
def tokenizers() -> TokenizerPair:
    return TranslationTask.new_tokenizers(from_dict(small_settings()))


def with_random_parameters(model: ImportedModel) -> ImportedModel:
    """Biases and norms included."""
    draw = np.random.default_rng(0)
    arrays = {name: draw.normal(0, 0.2, shape).astype(np.float32) for name, shape in model.shapes().items()}
    return replace(
        model, arrays=arrays | {name: 1 + leaf for name, leaf in arrays.items() if name.endswith("norm/scale")}
    )


def small_model(**model: object) -> ImportedModel:
    return with_random_parameters(ImportedModel(from_dict(small_settings(**model)), tokenizers(), {}))


def assert_same_parameters(model: ImportedModel, expected: ImportedModel) -> None:
    """Bit for bit."""
    assert model.config.model == expected.config.model
    of_both = ({name: leaf.tobytes() for name, leaf in one.arrays.items()} for one in (model, expected))
    assert next(of_both) == next(of_both)
