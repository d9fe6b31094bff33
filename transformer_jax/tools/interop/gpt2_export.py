"""Language models for ``GPT2LMHeadModel`` of the library transformers (Radford et al. 2019).

GPT-2 is the pre-norm decoder with learned positions and biases in attention: absent biases are written as zeros. A scaled
embedding is written scaled, with an output projection of its own. The tokenizer is written in this package's format, since
transformers has no tokenizer class with these ids.
"""

from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DecoderOnlyConfig
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.runs.run_directory import write_json
from transformer_jax.tools.interop.marian_export import ACTIVATIONS
from transformer_jax.tools.interop.matrix_layout import as_matrices
from transformer_jax.tools.interop.opened_model import OpenedModel, require_settings
from transformer_jax.tools.interop.safetensors_file import write_tensors

MODEL_TYPE = "gpt2"
TOKENIZER = "tokenizer"
QUERIES_KEYS_VALUES = ("query", "key", "value")
# Parameters of a layer by their names there; matrices are [in, out].
NORMS = {"ln_1": "self_attention_residual/norm", "ln_2": "feed_forward_residual/norm"}
FEED_FORWARD = {"mlp.c_fc": "feed_forward/wide", "mlp.c_proj": "feed_forward/narrow"}


def export(model: OpenedModel, folder: Path) -> None:
    """Writes weights, configuration and tokenizer; raises ConfigError naming a setting that GPT-2 lacks."""
    config: DecoderOnlyConfig = model.config.model
    choices = {"normalization": ("pre",), "positions": ("learned",), "feed_forward": ACTIVATIONS}
    require_settings(config, "is not supported by GPT-2", choices)
    if config.logits_bias:
        raise ConfigError("model.logits_bias: True is not supported by GPT-2; export with --format=safetensors")
    write_tensors(folder / "model.safetensors", state_dict(model))
    write_json(folder / "config.json", gpt2_config(model))
    write_json(folder / "generation_config.json", {"bad_words_ids": [[PAD_ID], [BOS_ID]], **_special_ids()})
    save_tokenizers(model.tokenizers, folder / TOKENIZER)


def is_tied(config: DecoderOnlyConfig) -> bool:
    """Whether embedding and output projection are one matrix there too."""
    return config.tying == "output" and config.embedding == "unscaled"


def state_dict(model: OpenedModel) -> dict[str, np.ndarray]:
    """The parameters under GPT-2's names."""
    config: DecoderOnlyConfig = model.config.model
    matrices = as_matrices(model.named)
    state: dict[str, np.ndarray] = {}
    for number in range(config.num_layers):
        ours, theirs = f"decoder_layers_{number}/", f"transformer.h.{number}."
        for name, norm in NORMS.items():
            state |= _norm(theirs + name, matrices, ours + norm)
        for name, part in FEED_FORWARD.items():
            state[f"{theirs}{name}.weight"] = matrices[f"{ours}{part}_kernel"].T
            state[f"{theirs}{name}.bias"] = matrices[f"{ours}{part}_bias"]
        for name, parts in (("attn.c_attn", QUERIES_KEYS_VALUES), ("attn.c_proj", ("output",))):
            paths = [f"{ours}self_attention/{part}" for part in parts]
            state[f"{theirs}{name}.weight"] = np.concatenate([matrices[path].T for path in paths], axis=1)
            width = np.zeros(config.d_model, np.float32)
            state[f"{theirs}{name}.bias"] = np.concatenate([matrices.get(f"{path}_bias", width) for path in paths])
    table = matrices["embedding/table"]
    scale = np.float32(config.d_model**0.5 if config.embedding == "scaled" else 1.0)
    state |= {"transformer.wte.weight": table * scale, "transformer.wpe.weight": matrices["positions/table"]}
    if not is_tied(config):
        state["lm_head.weight"] = matrices.get("projection/table", table)
    return state | _norm("transformer.ln_f", matrices, "decoder_norm")


def gpt2_config(model: OpenedModel) -> dict[str, Any]:
    """The content of ``config.json``."""
    config: DecoderOnlyConfig = model.config.model
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPE,
        "vocab_size": model.tokenizers.target.vocabulary_size,
        "n_positions": config.max_positions,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.d_ff,
        "activation_function": ACTIVATIONS[config.feed_forward].replace("swish", "silu"),
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.embedding_dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": is_tied(config),
        "dtype": "float32",
        **_special_ids(),
    }


def _norm(name: str, matrices: dict[str, np.ndarray], path: str) -> dict[str, np.ndarray]:
    return {f"{name}.weight": matrices[f"{path}/scale"], f"{name}.bias": matrices[f"{path}/bias"]}


def _special_ids() -> dict[str, int]:
    return {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
