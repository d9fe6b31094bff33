"""Import of fairseq translation models (Ott et al. 2019): checkpoint, two dictionaries, BPE codes or sentencepiece model."""

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.text_files import read_lines
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.imported import BpeCodesTokenizer, MappedSubwordTokenizer
from transformer_jax.tools.interop.fairseq_family import Orders, Tables, imported_translation, vocabulary_order
from transformer_jax.tools.interop.marian import dropout_settings
from transformer_jax.tools.interop.models import ImportedModel
from transformer_jax.tools.interop.weight_files import as_arrays, load_tensors_only, require_values, value_of

# The first ids of every fairseq dictionary; its decoder begins with EOS.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
SPECIAL_IDS = {"pad": 1, "start": 2, "eos": 2, "unk": 3}
SIZES = {
    "d_model": "encoder_embed_dim",
    "d_ff": "encoder_ffn_embed_dim",
    "num_heads": "encoder_attention_heads",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
}
ACTIVATIONS = {"relu": "relu", "gelu": "exact_gelu", "gelu_fast": "gelu", "gelu_accurate": "gelu", "swish": "silu"}
# Settings with the only supported value.
NEEDED = {
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "no_token_positional_embeddings": False,
    "adaptive_softmax_cutoff": None,
    "layernorm_embedding": False,
    "no_cross_attention": False,
    "cross_self_attention": False,
}
CODES = ("bpecodes", "bpe.codes", "code", "codes")
# Norms of a layer by index, in checkpoints of 2018.
OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def read(path: Path) -> ImportedModel:
    """Settings, tokenizers and parameters of a checkpoint, or of a folder with one.

    Raises DataError naming a file or tensor that is missing, damaged or unexpected, and for a checkpoint with other objects
    than tensors and settings; ConfigError naming an unsupported setting.
    """
    file = _checkpoint(path)
    content = load_tensors_only(file)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataError(f"{file}: not a fairseq checkpoint: it has no model")
    try:
        theirs = settings_of(content)
        state = current_names(as_arrays(content["model"], "model"))
        model = model_settings(theirs)
        languages = {
            f"{side}_language": value_of(theirs, f"{side}_lang", str, "settings") for side in ("source", "target")
        }
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    words = [_dictionary(file.parent / f"dict.{language}.txt") for language in languages.values()]
    source = vocabulary_order(len(words[0]), **SPECIAL_IDS)
    orders = (source, source if words[0] == words[1] else vocabulary_order(len(words[1]), **SPECIAL_IDS))
    tokenizers = _tokenizers(file.parent, words, orders)
    try:
        return imported_translation(model, languages, tokenizers, state, _tables(state), orders)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def settings_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of model and languages: ``args``, or ``model`` and ``task`` in the ``cfg`` of newer checkpoints."""
    if isinstance(args := content.get("args"), Namespace):
        return vars(args)
    cfg = content.get("cfg")
    parts = [cfg.get(name) for name in ("model", "task")] if isinstance(cfg, dict) else []
    model, task = (vars(part) if isinstance(part, Namespace) else part for part in parts or (None, None))
    if not isinstance(model, dict) or not isinstance(task, dict):
        raise DataError("no settings: neither args, nor cfg with model and task")
    return model | {name: task.get(name) for name in ("source_lang", "target_lang")}


def model_settings(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings ``model``; raises ConfigError naming an unsupported setting."""
    require_values(theirs, NEEDED, "settings")
    for name in ("ffn_embed_dim", "attention_heads", "normalize_before", "embed_dim"):
        encoder, decoder = (theirs.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise ConfigError(f"decoder_{name}: {decoder!r} differs from the encoder, {encoder!r}")
    activation = theirs.get("activation_fn", "relu")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation_fn: {activation!r} is not one of {', '.join(ACTIVATIONS)}")
    return {
        "kind": "transformer",
        **{ours: value_of(theirs, name, int, "settings") for ours, name in SIZES.items()},
        "normalization": "pre" if theirs.get("encoder_normalize_before", False) else "post",
        "positions": "fairseq",
        "feed_forward": ACTIVATIONS[activation],
        "embedding": "unscaled" if theirs.get("no_scale_embedding", False) else "scaled",
        "norm_epsilon": 1e-5,
        **dropout_settings(theirs),
    }


def current_names(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters of a checkpoint under current names."""
    current: dict[str, np.ndarray] = {}
    for name, leaf in state.items():
        if re.search(r"(version|_float_tensor|embed_positions\.weights?)$", name):
            continue
        if fused := re.fullmatch(r"(.*)in_proj_(weight|bias)", name):
            if len(leaf) % 3:
                raise DataError(f"{name}: {len(leaf)} rows do not split into queries, keys and values")
            for part, own in zip("qkv", np.split(leaf, 3), strict=True):
                current[f"{fused[1]}{part}_proj.{fused[2]}"] = own
            continue
        if norm := re.fullmatch(r"((encoder|decoder)\.layers\.\d+\.)layer_norms\.(\d)(\..*)", name):
            name = f"{norm[1]}{OLD_NORMS[norm[2]][int(norm[3])]}{norm[4]}"
        current[name] = leaf
    return current


def _checkpoint(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(path.glob("*.pt"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise DataError(f"{path}: expected one checkpoint, a file that ends in .pt; found {names}; name the file")
    return found[0]


def _dictionary(path: Path) -> list[str]:
    """Tokens by id, from lines of a token and its count."""
    lines = list(read_lines(path))
    for number, line in enumerate(lines, start=1):
        if not re.fullmatch(r"[^ ]+ \d+( #fairseq:overwrite)?", line):
            raise DataError(f"{path}, line {number}: expected a token and its count, found {line[:80]!r}")
    return [*SPECIAL_TOKENS, *(line.split(" ")[0] for line in lines)]


def _tables(state: dict[str, np.ndarray]) -> Tables:
    """Removes the tables from ``state``."""
    names = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    missing = [name for name in names if name not in state]
    if missing:
        raise DataError(f"tensors are missing: {', '.join(missing)}")
    source, target = (state.pop(name) for name in names)
    own = [state.pop(name, None) for name in ("decoder.output_projection.weight", "decoder.embed_out")]
    projection = next((each for each in own if each is not None), target)
    return Tables(source, target, projection, np.zeros(len(projection), np.float32))


def _tokenizers(folder: Path, words: list[list[str]], orders: Orders) -> TokenizerPair:
    vocabularies = [order.pieces(dict(enumerate(own))) for own, order in zip(words, orders, strict=True)]
    codes = [folder / name for name in CODES if (folder / name).is_file()]
    models = sorted(folder.glob("*.model"))
    if codes:
        merges = _merges(codes[0])
        both: list[Tokenizer] = [BpeCodesTokenizer(merges, pieces) for pieces in vocabularies]
    elif len(models) == 1:
        both = [MappedSubwordTokenizer(models[0].read_bytes(), pieces) for pieces in vocabularies]
    else:
        raise DataError(f"{folder}: has neither BPE codes ({', '.join(CODES)}) nor one sentencepiece model (*.model)")
    return TokenizerPair(both[0], both[0] if orders[0] is orders[1] else both[1])


def _merges(path: Path) -> list[tuple[str, str]]:
    """Merges in the order of learning, from a file of fastBPE or subword-nmt (version 0.2)."""
    merges = []
    for number, line in enumerate(read_lines(path), start=1):
        # Merges may have other white space, such as a no-break space.
        parts = [part for part in line.split(" ") if part]
        if number == 1 and parts[:1] == ["#version:"]:
            if parts[1:] != ["0.2"]:
                problem = "only #version: 0.2 is supported, which marks word ends inside merges"
                raise DataError(f"{path}, line 1: {line!r}: {problem}")
        elif parts[1:2] == ["</w>"]:
            problem = "a separate end of word, as in files of subword-nmt 0.1; only version 0.2 is supported"
            raise DataError(f"{path}, line {number}: {line!r}: {problem}")
        elif len(parts) >= 2:
            merges.append((parts[0], parts[1]))
        elif parts:
            raise DataError(f"{path}, line {number}: expected two parts of a word, found {line[:80]!r}")
    return merges
