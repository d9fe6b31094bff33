"""Reads folders of ``MarianMTModel``: OPUS-MT, and what this package exports (Junczys-Dowmunt et al. 2018)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.imported import MappedSubwordTokenizer
from transformer_jax.tools.interop.fairseq_family import SPECIAL_PIECES, Tables, imported_translation
from transformer_jax.tools.interop.fairseq_names import halves
from transformer_jax.tools.interop.imported_model import ImportedModel
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.marian_export import ACTIVATIONS, NORM_EPSILON
from transformer_jax.tools.interop.vocabulary_order import VocabularyOrder, vocabulary_order
from transformer_jax.tools.interop.weight_files import read_weights

FEED_FORWARDS = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {"silu": "silu"}
NEEDED = {"model_type": "marian", "normalize_before": False, "normalize_embedding": False, "add_bias_logits": False}
SIZES = {
    "d_model": "d_model",
    "d_ff": "encoder_ffn_dim",
    "num_heads": "encoder_attention_heads",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
}


def read(folder: Path) -> ImportedModel:
    """Settings, tokenizers and parameters.

    Raises DataError naming a file or tensor that is missing, damaged or unexpected, ConfigError naming a setting that no model
    here has.
    """
    theirs = read_object(folder / "config.json")
    model = model_settings(theirs, NEEDED)
    state = layers_and_tables(folder)
    try:
        orders = vocabulary_orders(folder, theirs)
        tables = tables_of(state, theirs.get("tie_word_embeddings", True))
        tokenizers = _tokenizers(folder, orders)
        model["tying"] = tables.tying(orders[0] is orders[1])
        size = max(each.vocabulary_size for each in tokenizers)
        joint = orders[0] is orders[1]
        tokenizer = {"kind": tokenizers.source.kind, "vocabulary_size": size, "joint": joint}
        config = from_dict({"tokenizer": tokenizer, "model": model, "data": _languages(folder)})
        width_order = np.argsort(halves(model["d_model"]))
        return imported_translation(config, tokenizers, state, tables, orders, width_order)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def layers_and_tables(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a model without its head's name before them, and without sinusoids that older versions wrote out."""
    state = {name.removeprefix("model."): leaf for name, leaf in read_weights(folder).items()}
    return {name: leaf for name, leaf in state.items() if not re.search(r"embed_positions\.weights?$", name)}


def vocabulary_orders(folder: Path, theirs: Mapping[str, Any]) -> tuple[VocabularyOrder, VocabularyOrder]:
    """Source and target vocabulary; the same object where they are shared.

    Raises DataError unless each has as many pieces in its file as config.json says.
    """
    path = folder / "config.json"
    names = {"pad": "pad_token_id", "start": "decoder_start_token_id", "eos": "eos_token_id"}
    ids = {role: value_of(theirs, name, int, path) for role, name in names.items()}
    source_size = value_of(theirs, "vocab_size", int, path)
    source = _order(folder / "vocab.json", source_size, ids)
    if theirs.get("share_encoder_decoder_embeddings", True):
        return source, source
    return source, _order(folder / "target_vocab.json", theirs.get("decoder_vocab_size") or source_size, ids)


def _order(path: Path, size: int, ids: Mapping[str, int]) -> VocabularyOrder:
    pieces = read_object(path)
    if sorted(map(str, pieces.values())) != sorted(map(str, range(len(pieces)))) or len(pieces) != size:
        raise DataError(f"{path}: {len(pieces):,} pieces; config.json says {size:,}, with ids from 0 to {size - 1:,}")
    beyond = {name: number for name, number in ids.items() if not 0 <= number < size}
    if beyond:
        raise DataError(f"{path}: ids of config.json are not in the vocabulary of {size:,} pieces: {beyond}")
    return vocabulary_order(size, unk=value_of(pieces, "<unk>", int, path), **ids)


def model_settings(theirs: Mapping[str, Any], needed: Mapping[str, Any]) -> dict[str, Any]:
    """The block ``model``; raises ConfigError naming a setting of theirs that is not as ``needed``, which no model here has."""
    both = {f"encoder_{name}": theirs.get(f"decoder_{name}") for name in ("ffn_dim", "attention_heads")}
    for name, value in {**needed, **both}.items():
        if theirs.get(name, value) != value:
            raise ConfigError(f"config.json: {name}={theirs[name]!r} is not supported; expected {value!r}")
    path = "config.json"
    activation = value_of(theirs, "activation_function", str, path)
    if activation not in FEED_FORWARDS:
        raise ConfigError(f"{path}: activation_function={activation!r} is not one of {', '.join(FEED_FORWARDS)}")
    sizes = {ours: value_of(theirs, name, int, path) for ours, name in SIZES.items()}
    return sizes | {
        "kind": "transformer",
        "attention": "biased",
        "feed_forward": FEED_FORWARDS[activation],
        "embedding": "scaled" if theirs.get("scale_embedding", False) else "unscaled",
        "norm_epsilon": NORM_EPSILON,
        **dropout_settings(theirs),
    }


def dropout_settings(theirs: Mapping[str, Any]) -> dict[str, float]:
    """The rates of dropout; theirs of sublayers is that of embeddings too."""
    dropout = float(theirs.get("dropout", 0.1))
    others = {name: float(theirs.get(name, 0.0)) for name in ("attention_dropout", "activation_dropout")}
    return {"dropout": dropout, "embedding_dropout": dropout} | others


def tables_of(state: dict[str, np.ndarray], ties_output: bool) -> Tables:
    """Takes the tables out of ``state``: a side without one of its own has the shared one."""
    own = [state.pop(f"{side}.embed_tokens.weight", None) for side in ("encoder", "decoder")]
    shared = state.pop("shared.weight", None)
    source, target = (shared if each is None else each for each in own)
    if source is None or target is None:
        raise DataError("tensors are missing: shared.weight")
    head = state.pop("lm_head.weight", None)
    projection = target if ties_output or head is None else head
    bias = state.pop("final_logits_bias", np.zeros((1, len(projection)), np.float32))
    return Tables(source, target, projection, bias[0])


def _tokenizers(folder: Path, orders: tuple[VocabularyOrder, VocabularyOrder]) -> TokenizerPair:
    both = []
    names = ["vocab.json", "vocab.json" if orders[0] is orders[1] else "target_vocab.json"]
    for side, name, order in zip(("source", "target"), names, orders, strict=True):
        by_id = {number: piece for piece, number in read_object(folder / name).items()}
        pieces = [SPECIAL_PIECES.get(i) or by_id.get(int(there), f"<{there}>") for i, there in enumerate(order.theirs)]
        try:
            model = (folder / f"{side}.spm").read_bytes()
        except OSError as error:
            raise DataError(f"{folder / f'{side}.spm'}: {error.strerror}") from None
        both.append(MappedSubwordTokenizer(model, pieces))
    source, target = both
    return TokenizerPair(source, source if source.to_bytes() == target.to_bytes() else target)


def _languages(folder: Path) -> dict[str, str]:
    """The languages, where the tokenizer names two."""
    path = folder / "tokenizer_config.json"
    theirs = read_object(path) if path.is_file() else {}
    languages = {f"{side}_language": theirs.get(f"{side}_lang") for side in ("source", "target")}
    return {name: value for name, value in languages.items() if value} if len(set(languages.values())) == 2 else {}
