"""Runs of tiny models with random parameters, written as an imported run is; made in a second."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.config import MeshConfig, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.interop.imported_model import ImportedModel
from transformer_jax.tools.interop.opened_model import OpenedModel
from transformer_jax.training.parameters import named_leaves
from transformer_jax.training.sharding import make_mesh

SMALL = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "interop.md"
TEXTS = ["the dog sees a cat", "a bird sings", "the old man who reads a book sees the small red house , and sleeps"]


def small_settings(cache: Path, **model: object) -> dict:
    """Settings of a translation with a joint vocabulary of 400 pieces."""
    return {
        "data": {
            "generated_pairs": 300,
            "cache_directory": str(cache),
            "max_source_tokens": 47,
            "max_target_tokens": 47,
        },
        "tokenizer": {"kind": "bpe", "vocabulary_size": 400},
        "batching": {"tokens_per_update": 512},
        "model": SMALL | model,
        "decoding": {"max_extra_tokens": 4},
    }


@cache
def tokenizers_of(directory: Path) -> TokenizerPair:
    """Learned once."""
    return TranslationTask.new_tokenizers(from_dict(small_settings(directory)))


def small_model(directory: Path = Path("unused"), **model: object) -> ImportedModel:
    """A model with random parameters, biases and norms included."""
    made = ImportedModel(from_dict(small_settings(directory, **model)), tokenizers_of(Path("unused")), {})
    shapes = named_leaves(jax.eval_shape(made.objective(one_device()).init_params, jax.random.key(0)))
    draw = np.random.default_rng(0)
    named = {name: draw.normal(0, 0.2, leaf.shape).astype(np.float32) for name, leaf in shapes.items()}
    named |= {name: 1 + leaf for name, leaf in named.items() if name.endswith("norm/scale")}
    return replace(made, named=named)


def one_device() -> Mesh:
    """The first of the devices of the tests."""
    return make_mesh(MeshConfig(), jax.devices()[:1])


def code_of(section: str) -> str:
    """The program in a section of docs/interop.md."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def opened(model: ImportedModel) -> OpenedModel:
    """The model as the commands open it, without its run."""
    return model.opened()
