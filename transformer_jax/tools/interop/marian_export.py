"""Translation models for ``MarianMTModel`` and ``MarianTokenizer`` of the library transformers.

A Marian model is the post-norm Transformer with biases in attention, sinusoids with all sines before all cosines, and a layer
norm epsilon of 1e-5. Absent biases are written as zeros; the width of every matrix is permuted, which is exact. An epsilon of
1e-6 becomes 1e-5, which moves logits by about 1e-5; a larger difference is refused.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, TransformerConfig
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.runs.run_directory import write_json
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.interop.fairseq_names import fairseq_name, halves, reordered_width
from transformer_jax.tools.interop.matrix_layout import as_matrices, tables
from transformer_jax.tools.interop.opened_model import OpenedModel, require_plain_transformer
from transformer_jax.tools.interop.safetensors_file import write_tensors

ACTIVATIONS = {"relu": "relu", "gelu": "gelu_new", "exact_gelu": "gelu", "silu": "swish"}
POSITIONS = 1024
# PyTorch's, which Marian models take.
NORM_EPSILON = 1e-5


def export(model: OpenedModel, folder: Path) -> None:
    """Writes weights, configuration and tokenizer; raises ConfigError naming a setting that Marian lacks."""
    require_expressible(model)
    config = model.config.model
    write_tensors(folder / "model.safetensors", state_dict(model))
    write_json(folder / "config.json", marian_config(model))
    write_json(folder / "generation_config.json", generation_config(model))
    _write_tokenizers(model, folder, config.tying)


def require_expressible(model: OpenedModel) -> None:
    """Raises ConfigError, naming task or setting, unless a Marian model can compute the same."""
    choices = {"normalization": ("post",), "feed_forward": ACTIVATIONS, "positions": ("sinusoidal",)}
    require_plain_transformer(model, "huggingface", "is not supported by Marian models", choices)
    epsilon = model.config.model.norm_epsilon
    if abs(epsilon - NORM_EPSILON) > NORM_EPSILON:
        raise ConfigError(
            f"model.norm_epsilon: {epsilon:g} is not supported by Marian models, which have {NORM_EPSILON:g}"
        )


def state_dict(model: OpenedModel) -> dict[str, np.ndarray]:
    """The parameters under Marian's names."""
    config: TransformerConfig = model.config.model
    order = halves(config.d_model)
    matrices = {name: reordered_width(name, leaf, order) for name, leaf in as_matrices(model.named).items()}
    layers = {name: leaf for name, leaf in matrices.items() if name.startswith(("encoder_", "decoder_"))}
    state = {f"model.{fairseq_name(name)}": leaf for name, leaf in layers.items()}
    for name in [name for name in state if name.endswith("_proj.weight")]:
        state.setdefault(name.replace("weight", "bias"), np.zeros(len(state[name]), np.float32))
    source, target, projection = tables(matrices, config)
    if config.tying == "all":
        state["model.shared.weight"] = source
    else:
        state |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
    if config.tying in ("embeddings", "none"):
        # Without tied output the library ties nothing.
        state["lm_head.weight"] = projection
    bias = matrices.get("projection/logits_bias", np.zeros(len(projection), np.float32))
    return state | {"final_logits_bias": bias[None]}


def marian_config(model: OpenedModel) -> dict[str, Any]:
    """The content of ``config.json``."""
    config: TransformerConfig = model.config.model
    source, target = (tokenizer.vocabulary_size for tokenizer in model.tokenizers)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": source,
        "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": config.tying in ("all", "embeddings"),
        "tie_word_embeddings": config.tying in ("all", "output"),
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "activation_function": ACTIVATIONS[config.feed_forward],
        "scale_embedding": config.embedding == "scaled",
        "static_position_embeddings": True,
        "max_position_embeddings": POSITIONS,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "dtype": "float32",
        **_special_ids(),
    }


def generation_config(model: OpenedModel) -> dict[str, Any]:
    """The content of ``generation_config.json``: PAD and BOS are never chosen, as here."""
    return {
        "bad_words_ids": [[PAD_ID], [BOS_ID]],
        "max_length": POSITIONS,
        "num_beams": model.config.decoding.beam_width,
        "length_penalty": model.config.decoding.length_penalty,
        **_special_ids(),
    }


def _special_ids() -> dict[str, Any]:
    return {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }


def _write_tokenizers(model: OpenedModel, folder: Path, tying: str) -> None:
    """``source.spm``, ``target.spm``, ``vocab.json``, and ``target_vocab.json`` where vocabularies are separate."""
    shares = tying in ("all", "embeddings")
    for side, tokenizer in zip(("source", "target"), model.tokenizers, strict=True):
        write_whole(folder / f"{side}.spm", sentencepiece_model(tokenizer))
    for name, tokenizer in zip(
        ("vocab.json", "target_vocab.json")[: 1 if shares else 2], model.tokenizers, strict=False
    ):
        pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
        write_whole(folder / name, json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False))
    content = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": model.config.data.source_language,
        "target_lang": model.config.data.target_language,
        "separate_vocabs": not shares,
        "model_max_length": POSITIONS,
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    write_json(folder / "tokenizer_config.json", content)


def sentencepiece_model(tokenizer: Tokenizer) -> bytes:
    """The sentencepiece model of a tokenizer; raises ConfigError where it has none."""
    if tokenizer.kind in ("bpe", "unigram"):
        return tokenizer.to_bytes()
    if tokenizer.kind == "mapped":
        model: bytes = tokenizer.model  # type: ignore[attr-defined]  # of this kind
        return model
    raise ConfigError(
        f"tokenizer.kind: {tokenizer.kind!r} is not a sentencepiece model, which this format needs; use safetensors"
    )
