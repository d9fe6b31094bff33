"""Export and import of Marian models such as OPUS-MT (Junczys-Dowmunt et al. 2018).

``MarianMTModel`` of transformers is a post-norm Transformer with attention biases, sinusoids with
all sines before all cosines, and a layer norm epsilon of 1e-5. Absent biases are written as zeros.
The width axis of every matrix is permuted, which is exact. An epsilon of 1e-6 becomes 1e-5, which
changes logits by about 1e-5, and a larger difference is refused. transformers divides by
length^alpha (not equation 14 of Wu et al. 2016), so its beam search ranks slightly differently, and
has one dropout rate, ``model.dropout``.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DataError, TransformerConfig
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.subword import MappedSubwordTokenizer
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.run_directory.layout import write_json
from transformer_jax.tools.interop.fairseq_family import (
    Orders,
    Tables,
    VocabularyOrder,
    fairseq_name,
    halves,
    imported_translation,
    reordered_width,
    vocabulary_order,
)
from transformer_jax.tools.interop.matrix_layout import as_matrices, tables
from transformer_jax.tools.interop.models import ImportedModel, OpenedModel, require_plain_transformer
from transformer_jax.tools.interop.weight_files import (
    read_bytes,
    read_object,
    read_weights,
    require_values,
    value_of,
    write_tensors,
)

MODEL_TYPE = "marian"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu_new", "exact_gelu": "gelu", "silu": "swish"}
FEED_FORWARDS = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {"silu": "silu"}
POSITIONS = 1024
# PyTorch's default.
NORM_EPSILON = 1e-5
# Settings with the only supported value.
NEEDED = {"model_type": MODEL_TYPE, "normalize_before": False, "normalize_embedding": False, "add_bias_logits": False}
SIZES = {
    "d_model": "d_model",
    "d_ff": "encoder_ffn_dim",
    "num_heads": "encoder_attention_heads",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
}


def export(model: OpenedModel, folder: Path) -> None:
    """Write weights, configuration and tokenizer.

    Raises ConfigError for a setting that Marian does not support.
    """
    choices = {"normalization": ("post",), "feed_forward": ACTIVATIONS, "positions": ("sinusoidal",)}
    require_plain_transformer(model, "huggingface", "is not supported by Marian models", choices)
    config: TransformerConfig = model.config.model
    if abs(config.norm_epsilon - NORM_EPSILON) > NORM_EPSILON:
        problem = f"{config.norm_epsilon:g} is not supported by Marian models, which have {NORM_EPSILON:g}"
        raise ConfigError("model.norm_epsilon", problem)
    special_ids: dict[str, Any] = {"pad_token_id": PAD_ID, "bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    special_ids |= {"decoder_start_token_id": BOS_ID, "forced_eos_token_id": None}
    shares_embeddings = config.tying in ("all", "embeddings")
    source, target = (tokenizer.vocabulary_size for tokenizer in model.tokenizers)
    write_tensors(folder / "model.safetensors", _state_dict(model))
    content: dict[str, Any] = {
        "architectures": ["MarianMTModel"],
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        "vocab_size": source,
        "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": shares_embeddings,
        "tie_word_embeddings": config.tying in ("all", "output"),
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "decoder_ffn_dim": config.d_ff,
        "decoder_attention_heads": config.num_heads,
        "activation_function": ACTIVATIONS[config.feed_forward],
        "scale_embedding": config.embedding == "scaled",
        "static_position_embeddings": True,
        "max_position_embeddings": POSITIONS,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "dtype": "float32",
    }
    write_json(folder / "config.json", content | special_ids)
    decoding = model.config.decoding
    content = {"bad_words_ids": [[PAD_ID], [BOS_ID]], "max_length": POSITIONS}
    content |= {"num_beams": decoding.beam_width, "length_penalty": decoding.length_penalty}
    write_json(folder / "generation_config.json", content | special_ids)
    for side, tokenizer in zip(("source", "target"), model.tokenizers, strict=True):
        write_whole(folder / f"{side}.spm", sentencepiece_model(tokenizer))
    names = ("vocab.json",) if shares_embeddings else ("vocab.json", "target_vocab.json")
    for name, tokenizer in zip(names, model.tokenizers, strict=False):
        pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
        write_whole(folder / name, json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False))
    content = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": model.config.data.source_language,
        "target_lang": model.config.data.target_language,
        "separate_vocabs": not shares_embeddings,
        "model_max_length": POSITIONS,
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    write_json(folder / "tokenizer_config.json", content)


def _state_dict(model: OpenedModel) -> dict[str, np.ndarray]:
    config: TransformerConfig = model.config.model
    order = halves(config.d_model)
    matrices = {name: reordered_width(name, leaf, order) for name, leaf in as_matrices(model.arrays).items()}
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
        # transformers ties nothing unless the output is tied.
        state["lm_head.weight"] = projection
    bias = matrices.get("projection/logits_bias", np.zeros(len(projection), np.float32))
    return state | {"final_logits_bias": bias[None]}


def sentencepiece_model(tokenizer: Tokenizer) -> bytes:
    """Return the sentencepiece model of a tokenizer. Raise ConfigError if it has none."""
    if tokenizer.kind in ("bpe", "unigram"):
        return tokenizer.to_bytes()
    if tokenizer.kind == "mapped":
        model: bytes = tokenizer.model  # type: ignore[attr-defined]  # of this kind
        return model
    problem = f"{tokenizer.kind!r} is not a sentencepiece model, which this format needs"
    raise ConfigError("tokenizer.kind", problem, "use safetensors")


def read(folder: Path) -> ImportedModel:
    """Read a folder.

    Raises DataError for a file or tensor that is missing, damaged or unexpected, ConfigError for a
    setting that is not supported.
    """
    theirs = read_object(folder / "config.json")
    model = model_settings(theirs, NEEDED)
    state = layers_and_tables(folder)
    try:
        orders = vocabulary_orders(folder, theirs)
        embeddings = tables_of(state, theirs.get("tie_word_embeddings", True))
        tokenizers = _tokenizers(folder, orders)
        width_order = np.argsort(halves(model["d_model"]))
        return imported_translation(model, _languages(folder), tokenizers, state, embeddings, orders, width_order)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def layers_and_tables(folder: Path) -> dict[str, np.ndarray]:
    """Return tensors without the prefix ``model.`` and without sinusoids of earlier versions."""
    state = {name.removeprefix("model."): leaf for name, leaf in read_weights(folder).items()}
    return {name: leaf for name, leaf in state.items() if not re.search(r"embed_positions\.weights?$", name)}


def special_ids_of(theirs: Mapping[str, Any], path: Path) -> dict[str, int]:
    """Return the ids of PAD, EOS, and the first token of the decoder."""
    names = {"pad": "pad_token_id", "start": "decoder_start_token_id", "eos": "eos_token_id"}
    return {role: value_of(theirs, name, int, path) for role, name in names.items()}


def vocabulary_orders(folder: Path, theirs: Mapping[str, Any]) -> Orders:
    """Return both vocabularies. Raise DataError unless their sizes are those in config.json."""
    path = folder / "config.json"
    ids = special_ids_of(theirs, path)
    source_size = value_of(theirs, "vocab_size", int, path)
    source = _order(folder / "vocab.json", source_size, ids)
    if theirs.get("share_encoder_decoder_embeddings", True):
        return source, source
    return source, _order(folder / "target_vocab.json", theirs.get("decoder_vocab_size") or source_size, ids)


def _order(path: Path, size: int, ids: Mapping[str, int]) -> VocabularyOrder:
    pieces = read_object(path)
    if sorted(map(str, pieces.values())) != sorted(map(str, range(len(pieces)))) or len(pieces) != size:
        raise DataError(f"{path}: {len(pieces):,} pieces, but config.json has {size:,}, with ids from 0")
    return vocabulary_order(size, unk=value_of(pieces, "<unk>", int, path), **ids)


def model_settings(theirs: Mapping[str, Any], needed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings ``model``. Raise ConfigError for one that differs from ``needed``."""
    path = "config.json"
    both = {f"encoder_{name}": theirs.get(f"decoder_{name}") for name in ("ffn_dim", "attention_heads")}
    require_values(theirs, {**needed, **both}, path)
    sizes = {ours: value_of(theirs, name, int, path) for ours, name in SIZES.items()}
    activation = value_of(theirs, "activation_function", str, path)
    if activation not in FEED_FORWARDS:
        raise ConfigError(path, f"activation_function={activation!r} is not one of {', '.join(FEED_FORWARDS)}")
    return sizes | {
        "kind": "transformer",
        "feed_forward": FEED_FORWARDS[activation],
        "embedding": "scaled" if theirs.get("scale_embedding", False) else "unscaled",
        "norm_epsilon": NORM_EPSILON,
        # The rate of sublayers also applies to embeddings.
        **dict.fromkeys(("dropout", "embedding_dropout"), float(theirs.get("dropout", 0.1))),
        **{name: float(theirs.get(name, 0.0)) for name in ("attention_dropout", "activation_dropout")},
    }


def tables_of(state: dict[str, np.ndarray], ties_output: bool) -> Tables:
    """Remove the tables from ``state``. A side without a table has the shared one."""
    sides = [state.pop(f"{side}.embed_tokens.weight", None) for side in ("encoder", "decoder")]
    shared = state.pop("shared.weight", None)
    source, target = (shared if table is None else table for table in sides)
    if source is None or target is None:
        raise DataError("tensors are missing: shared.weight")
    head = state.pop("lm_head.weight", None)
    projection = target if ties_output or head is None else head
    bias = state.pop("final_logits_bias", np.zeros((1, len(projection)), np.float32))
    return Tables(source, target, projection, bias[0])


def _tokenizers(folder: Path, orders: Orders) -> TokenizerPair:
    both = []
    names = ["vocab.json", "vocab.json" if orders[0] is orders[1] else "target_vocab.json"]
    for side, name, order in zip(("source", "target"), names, orders, strict=True):
        by_id = {number: piece for piece, number in read_object(folder / name).items()}
        both.append(MappedSubwordTokenizer(read_bytes(folder / f"{side}.spm"), order.pieces(by_id)))
    source, target = both
    return TokenizerPair(source, source if source.to_bytes() == target.to_bytes() else target)


def _languages(folder: Path) -> dict[str, str]:
    """Return the languages if the tokenizer has two."""
    path = folder / "tokenizer_config.json"
    theirs = read_object(path) if path.is_file() else {}
    languages = {f"{side}_language": theirs.get(f"{side}_lang") for side in ("source", "target")}
    return {name: value for name, value in languages.items() if value} if len(set(languages.values())) == 2 else {}
