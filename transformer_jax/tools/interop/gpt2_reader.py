"""Reads folders of ``GPT2LMHeadModel`` whose tokenizer is one of this package, as export writes it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.tools.interop.gpt2_export import FEED_FORWARD, MODEL_TYPE, NORMS, QUERIES_KEYS_VALUES, TOKENIZER
from transformer_jax.tools.interop.imported_model import ImportedModel, require_same_names, require_same_shapes
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.marian_reader import FEED_FORWARDS
from transformer_jax.tools.interop.matrix_layout import HeadSizes, as_kernels, matrix_shapes, without_zero_biases
from transformer_jax.tools.interop.weight_files import read_weights

SIZES = {"d_model": "n_embd", "num_heads": "n_head", "num_layers": "n_layer", "max_positions": "n_positions"}
# The only value of each setting that can be read.
NEEDED = {
    "model_type": MODEL_TYPE,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
}
# Causal masks that older versions wrote out.
NO_PARAMETER = re.compile(r"\.attn\.(masked_)?bias$")
LONGEST_ROW = 256


def read(folder: Path) -> ImportedModel:
    """Settings, tokenizer and parameters of a language model.

    Raises ConfigError naming a setting that no model here has, DataError naming a file or tensor that is missing, damaged or
    unexpected: also for a tokenizer of GPT-2's own, whose merges of bytes have none here.
    """
    path = folder / "config.json"
    theirs = read_object(path)
    for name, value in NEEDED.items():
        if theirs.get(name, value) != value:
            raise ConfigError(f"{path}: {name}={theirs[name]!r} is not supported; expected {value!r}")
    if not (folder / TOKENIZER).is_dir():
        problem = "no tokenizer that export wrote; GPT-2's own (vocab.json, merges.txt) has no counterpart here"
        raise DataError(f"{folder / TOKENIZER}: {problem}")
    tokenizers = load_tokenizers(folder / TOKENIZER)
    size = value_of(theirs, "vocab_size", int, path)
    if size != tokenizers.target.vocabulary_size:
        raise DataError(
            f"{path}: vocab_size={size:,}, but the tokenizer has {tokenizers.target.vocabulary_size:,} pieces"
        )
    state = {name.removeprefix("transformer."): leaf for name, leaf in read_weights(folder).items()}
    state = {name: leaf for name, leaf in state.items() if not NO_PARAMETER.search(name)}
    model = model_settings(theirs, path)
    is_tied = theirs.get("tie_word_embeddings", True)
    if is_tied:
        state.pop("lm_head.weight", None)
    biased = _matrices(state, model["num_layers"], is_tied, folder)
    matrices = without_zero_biases(biased)
    if len(matrices) < len(biased):
        model["attention"] = "multi_head"
    width = model["d_model"] // model["num_heads"]
    length = min(LONGEST_ROW, model["max_positions"])
    config = from_dict(
        {
            "task": "language_model",
            "tokenizer": {"kind": tokenizers.target.kind, "vocabulary_size": size},
            "model": model | {"tying": "output" if is_tied else "none"},
            "batching": {"context_length": length, "tokens_per_update": 16 * length},
            "decoding": {"max_new_tokens": min(100, length)},
        }
    )
    require_same_shapes(matrices, matrix_shapes(ImportedModel(config, tokenizers, {}).shapes()), folder)
    return ImportedModel(config, tokenizers, as_kernels(matrices, HeadSizes(model["num_heads"], width, width)))


def model_settings(theirs: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The block ``model``; raises ConfigError or DataError naming a setting of theirs."""
    activation = theirs.get("activation_function", "gelu_new")
    if activation not in FEED_FORWARDS:
        raise ConfigError(f"{path}: activation_function={activation!r} is not one of {', '.join(FEED_FORWARDS)}")
    sizes = {ours: value_of(theirs, name, int, path) for ours, name in SIZES.items()}
    return sizes | {
        "kind": "decoder_only",
        "d_ff": theirs.get("n_inner") or 4 * sizes["d_model"],
        "attention": "biased",
        "embedding": "unscaled",
        "feed_forward": FEED_FORWARDS[activation],
        "norm_epsilon": float(theirs.get("layer_norm_epsilon", 1e-5)),
        "dropout": float(theirs.get("resid_pdrop", 0.1)),
        "embedding_dropout": float(theirs.get("embd_pdrop", 0.1)),
        "attention_dropout": float(theirs.get("attn_pdrop", 0.1)),
    }


def _matrices(state: dict[str, np.ndarray], num_layers: int, is_tied: bool, folder: Path) -> dict[str, np.ndarray]:
    """Matrices [out, in] and vectors under the names of this package; raises DataError naming what is missing or left over."""
    names = {"embedding/table": "wte.weight", "positions/table": "wpe.weight"} | _norm("decoder_norm", "ln_f")
    if not is_tied:
        names["projection/table"] = "lm_head.weight"
    for number in range(num_layers):
        ours, theirs = f"decoder_layers_{number}/", f"h.{number}."
        for name, norm in NORMS.items():
            names |= _norm(ours + norm, theirs + name)
        for name, part in FEED_FORWARD.items():
            names |= {f"{ours}{part}_kernel": f"{theirs}{name}.weight", f"{ours}{part}_bias": f"{theirs}{name}.bias"}
        for part in (*QUERIES_KEYS_VALUES, "output"):
            name = "attn.c_proj" if part == "output" else "attn.c_attn"
            names[f"{ours}self_attention/{part}"] = f"{theirs}{name}.weight"
            names[f"{ours}self_attention/{part}_bias"] = f"{theirs}{name}.bias"
    require_same_names(set(state), set(names.values()), folder)
    return {ours: _part(ours, state[theirs]) for ours, theirs in names.items()}


def _part(name: str, leaf: np.ndarray) -> np.ndarray:
    """A parameter as [out, in]: of queries, keys and values side by side those of ``name``."""
    if found := re.search(r"attention/(query|key|value)(_bias)?$", name):
        leaf = np.array_split(leaf, 3, axis=-1)[QUERIES_KEYS_VALUES.index(found[1])]
    return leaf.T if leaf.ndim == 2 and not name.endswith("table") else leaf


def _norm(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}/scale": f"{theirs}.weight", f"{ours}/bias": f"{theirs}.bias"}
