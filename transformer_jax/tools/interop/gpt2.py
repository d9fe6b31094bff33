"""Export of language models as ``GPT2LMHeadModel`` of transformers (Radford et al. 2019).

GPT-2 is a pre-norm decoder with learned positions and attention biases. Absent biases are written
as zeros. If the embedding is scaled, the scaled table and a separate output projection are written.
The tokenizer is written in this package's format, since transformers has no tokenizer class with
these ids. GPT-2 has no ``activation_dropout``.
"""

from pathlib import Path

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError
from transformer_jax.config.language_model import DecoderOnlyConfig
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.run_directory.layout import write_json
from transformer_jax.tools.interop.marian import ACTIVATIONS
from transformer_jax.tools.interop.matrix_layout import as_matrices
from transformer_jax.tools.interop.models import OpenedModel, require_settings
from transformer_jax.tools.interop.weight_files import write_tensors

MODEL_TYPE = "gpt2"
TOKENIZER = "tokenizer"
SPECIAL_IDS = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
SIZES = {"d_model": "n_embd", "num_heads": "n_head", "num_layers": "n_layer", "max_positions": "n_positions"}
# Names in transformers and here. There queries, keys and values are one matrix.
NORMS = {"ln_1": "self_attention_residual/norm", "ln_2": "feed_forward_residual/norm"}
FEED_FORWARD = {"mlp.c_fc": "feed_forward/wide", "mlp.c_proj": "feed_forward/narrow"}
ATTENTION = {"attn.c_attn": ("query", "key", "value"), "attn.c_proj": ("output",)}


def export(model: OpenedModel, folder: Path) -> None:
    """Write weights, configuration and tokenizer.

    Raises ConfigError for a setting that GPT-2 does not support.
    """
    config: DecoderOnlyConfig = model.config.model
    choices = {"normalization": ("pre",), "positions": ("learned",), "feed_forward": ACTIVATIONS}
    require_settings(config, "is not supported by GPT-2", choices)
    if config.logits_bias:
        raise ConfigError("model.logits_bias", "True is not supported by GPT-2", "export with --format=safetensors")
    is_tied = config.tying == "output" and config.embedding == "unscaled"
    matrices = as_matrices(model.arrays)
    table = matrices["embedding/table"]
    matrices.setdefault("projection/table", table)
    matrices["embedding/table"] = table * np.float32(config.d_model**0.5 if config.embedding == "scaled" else 1.0)
    parts: dict[str, list[np.ndarray]] = {}
    for ours, theirs in _parameter_names(config.num_layers, is_tied).items():
        leaf = matrices.get(ours, np.zeros(config.d_model, np.float32))
        # Matrices are [in, out] there.
        parts.setdefault(theirs, []).append(leaf.T if leaf.ndim == 2 and not ours.endswith("table") else leaf)
    state = {name: np.concatenate(leaves, axis=-1) for name, leaves in parts.items()}
    prefix = {name: "" if name.startswith("lm_head") else "transformer." for name in state}
    write_tensors(folder / "model.safetensors", {prefix[name] + name: leaf for name, leaf in state.items()})
    content = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPE,
        "vocab_size": model.tokenizers.target.vocabulary_size,
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "n_inner": config.d_ff,
        "activation_function": ACTIVATIONS[config.feed_forward].replace("swish", "silu"),
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.embedding_dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": is_tied,
        "dtype": "float32",
    }
    write_json(folder / "config.json", content | SPECIAL_IDS)
    write_json(folder / "generation_config.json", {"bad_words_ids": [[PAD_ID], [BOS_ID]], **SPECIAL_IDS})
    save_tokenizers(model.tokenizers, folder / TOKENIZER)


def _parameter_names(num_layers: int, is_tied: bool) -> dict[str, str]:
    """Return GPT-2's names without ``transformer.``. Queries, keys and values share a name."""
    names = {"embedding/table": "wte.weight", "positions/table": "wpe.weight"}
    names |= {} if is_tied else {"projection/table": "lm_head.weight"}
    norms = {"decoder_norm": "ln_f"}
    for number in range(num_layers):
        ours, theirs = f"decoder_layers_{number}/", f"h.{number}."
        norms |= {ours + norm: theirs + name for name, norm in NORMS.items()}
        for name, part in FEED_FORWARD.items():
            names |= {f"{ours}{part}_kernel": f"{theirs}{name}.weight", f"{ours}{part}_bias": f"{theirs}{name}.bias"}
        for name, parts in ATTENTION.items():
            names |= {f"{ours}self_attention/{part}": f"{theirs}{name}.weight" for part in parts}
            names |= {f"{ours}self_attention/{part}_bias": f"{theirs}{name}.bias" for part in parts}
    for ours, theirs in norms.items():
        names |= {f"{ours}/scale": f"{theirs}.weight", f"{ours}/bias": f"{theirs}.bias"}
    return names
