"""A model for the JavaScript in ``live``: settings, parameters in 16 or 8 bits, tokenizers."""

import inspect
import re
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import EOS_ID, PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.data.tokenizers.subword import sentencepiece_processor
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import TrainedRun, with_exact_products

WORKER = (
    *("tensor", "layers", "attention", "transformer", "rnn_attention", "recurrent"),
    *("tokenizer", "search", "reading", "questions", "worker"),
)
"""The modules of the worker, in order: one script."""

# Larger parameters are stored in 8 bits.
FLOAT16_BYTES = 8 << 20
# Larger parameters are refused.
INT8_BYTES = 64 << 20
INT8_STEPS = 127
# No limit.
LONGEST = 1 << 30
# Source tokens. The page takes minutes for more.
LONGEST_SOURCE = 1024
# Tokens that the page adds to a prompt.
NEW_TOKENS = 30
# Beams for a run that samples, which has no tree of a search.
BEAMS_OF_SAMPLING = 4


class LiveModel(NamedTuple):
    """A model as the page stores it: JSON, and the bytes of all arrays in order."""

    description: dict[str, Any]
    parameters: bytes


def worker_source() -> str:
    """Return the modules of the worker as one script."""
    return "\n".join(part_of_page(f"live/{name}.js") for name in WORKER)


def part_of_page(name: str) -> str:
    """Return a file of the page: HTML, style or script."""
    return files("transformer_jax.tools.explorer").joinpath(name).read_text(encoding="utf-8")


def code_of_tour() -> dict[str, str]:
    """Return file and line of the ``module:object`` of each step of the guided tour."""
    lines = {}
    for step, module, name in re.findall(r'(\w+): "([\w.]+):([\w.]+)"', part_of_page("live/tour.js")):
        code: Any = reduce(getattr, name.split("."), import_module(f"transformer_jax.{module}"))
        line = inspect.getsourcelines(inspect.unwrap(code))[1]
        lines[step] = f"transformer_jax/{module.replace('.', '/')}.py:{line} {name}"
    return lines


def live_model(trained: TrainedRun[Any]) -> LiveModel:
    """Return the model of a run that ``require_live`` accepts.

    Raises DataError for parameters that have no 16-bit value, ConfigError for too many.
    """
    config = trained.config
    entries, parameters, _ = pack_parameters(trained.params)
    source, target = trained.tokenizers
    settings = _recurrent_settings(config) if config.model.is_recurrent else _transformer_settings(config)
    search = {"beamWidth": config.decoding.beam_width, "lengthPenalty": config.decoding.length_penalty}
    if config.task == "language_model":
        length = min(config.decoding.max_new_tokens, NEW_TOKENS)
        search |= {"beamWidth": beams_of(config.decoding.beam_width), "length": length}
        settings |= {"contextLength": config.batching.context_length}
    else:
        longest = config.model.longest_sequence
        settings |= {
            "maxExtraTokens": config.decoding.max_extra_tokens,
            "maxSourceTokens": min(config.decoding.max_source_tokens + 1, longest or LONGEST_SOURCE),
            "longest": longest or LONGEST,
        }
    return LiveModel(
        {
            "settings": {"kind": config.model.kind, "tying": config.model.tying, **settings},
            "training": {
                "longest": trained.training_input.longest if config.task == "translation" else LONGEST,
                "limit": trained.training_input.limit if config.task == "translation" else LONGEST,
                "unseen": sorted(trained.training_input.unseen_ids(source)),
            },
            "entries": entries,
            "tokenizers": [*map(tokenizer_table, [source] if source is target else [source, target])],
            "search": search,
            "bits": 8 if "scales" in entries[0] else 16,
        },
        parameters,
    )


def beams_of(beam_width: int) -> int:
    return beam_width if beam_width > 1 else BEAMS_OF_SAMPLING


def _transformer_settings(config: ExperimentConfig) -> dict[str, Any]:
    model, parts, changes = config.model, config.parts, config.model.attention
    key_heads = 1 if "multi_query" in changes else model.num_heads
    if "grouped_query" in changes:
        key_heads = parts["grouped_query"].key_value_heads
    is_gated = model.feed_forward in parts
    rope = parts.get("rope")
    return {
        "width": model.d_model,
        "inner": parts[model.feed_forward].width(model.d_ff) if is_gated else model.d_ff,
        "heads": model.num_heads,
        "keyHeads": key_heads,
        "keySize": model.head_key_size,
        "valueSize": model.head_value_size,
        "encoderLayers": getattr(model, "num_encoder_layers", 0),
        "decoderLayers": model.decoder_depth,
        "isScaled": model.attention != "unscaled",
        "normalization": model.normalization,
        "norm": model.norm,
        "positions": model.positions,
        "rope": rope and {"base": rope.base, "pairs": int(model.head_key_size * rope.share) // 2},
        "feedForward": model.feed_forward,
        "embedding": model.embedding,
        "epsilon": model.norm_epsilon,
        "hasLogitsBias": model.logits_bias,
    }


def _recurrent_settings(config: ExperimentConfig) -> dict[str, Any]:
    model = config.model
    return {
        "cell": model.cell,
        "heads": 1,
        "encoderLayers": model.num_encoder_layers,
        "decoderLayers": model.num_decoder_layers,
        "hiddenSize": model.d_hidden,
        "memorySize": model.d_memory,
        "isBidirectional": model.bidirectional_encoder,
        "reversesSource": model.reverse_source,
        "decoderStart": model.decoder_start,
        "attention": model.attention,
        "wiring": model.wiring,
        "feedsInput": model.input_feeding,
        "normalizer": model.attention_weights,
        "sharpness": model.attention_sharpness,
        "window": model.attention_window,
        "filters": model.location_filters if model.attention.endswith("location_sensitive") else 0,
        "taps": model.location_taps,
        "embedding": "scaled",
        "hasLogitsBias": False,
    }


def pack_parameters(params: PyTree) -> tuple[list[dict[str, Any]], bytes, PyTree]:
    """Return the path and shape of all arrays, their bytes in that order, and the rounded tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(jax.device_get(params))
    arrays = {"/".join(str(key.key) for key in path): np.asarray(array, np.float32) for path, array in leaves}
    size = sum(array.size for array in arrays.values())
    if size > INT8_BYTES:
        raise ConfigError("--live", f"{size:,} parameters", f"a page holds at most {INT8_BYTES:,}")
    entries, chunks, stored = [], [], []
    for path, array in arrays.items():
        entry: dict[str, Any] = {"path": path, "shape": list(array.shape)}
        if 2 * size <= FLOAT16_BYTES:
            with np.errstate(over="ignore"):
                half = array.astype("<f2")
            values = half.astype(np.float32)
            data = half.tobytes()
        else:
            rows = array.reshape(array.shape[0] if array.ndim > 1 else 1, -1)
            scales = np.abs(rows).max(axis=1, initial=0.0) / INT8_STEPS
            with np.errstate(invalid="ignore"):
                steps = np.rint(rows / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
            values = (steps * scales[:, None]).astype(np.float32).reshape(array.shape)
            data, entry["scales"] = steps.tobytes(), [float(f"{scale:.7g}") for scale in scales]
        if not np.isfinite(values).all():
            raise DataError(f"--live: {path} has NaN, infinity, or values that have no 16-bit float")
        entries.append(entry)
        chunks.append(data)
        stored.append(values)
    return entries, b"".join(chunks), jax.tree_util.tree_unflatten(structure, stored)


def logits_error(trained: TrainedRun[Any], texts: Sequence[tuple[str, str | None]]) -> float:
    """Return by how much rounding the parameters changes teacher-forced logits, at most.

    ``texts``: source and target, or a text and None. Both sides are computed in float32.
    """
    model = type(trained.task)(with_exact_products(trained.config), trained.tokenizers, trained.mesh).objective.model
    # Several devices do not divide one row unless the program is compiled.
    logits = jax.jit(lambda params, *inputs: call(model, params, "__call__", *inputs, train=False))
    _, _, stored = pack_parameters(trained.params)
    largest = 0.0
    for text, translation in texts:
        sides = [text] if translation is None else [text, translation]
        inputs = [
            Tokens.from_ids(jnp.asarray([[*tokenizer.encode(side), EOS_ID]], jnp.int32))
            for tokenizer, side in zip(trained.tokenizers[-len(sides) :], sides, strict=True)
        ]
        exact, rounded = (logits(params, *inputs) for params in (trained.params, stored))
        largest = max(largest, float(jnp.abs(exact - rounded).max()))
    return largest


def tokenizer_table(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the vocabulary of a tokenizer for ``tokenizer.js``."""
    ids = range(tokenizer.vocabulary_size)
    table: dict[str, Any] = {"kind": tokenizer.kind, "pieces": tokenizer.pieces(list(ids))}
    if isinstance(tokenizer, WordTokenizer):
        table["marks"] = "marks" in tokenizer.content()
    if tokenizer.kind in ("bpe", "unigram"):
        processor = sentencepiece_processor(tokenizer.to_bytes())
        special = (processor.is_control, processor.is_unknown, processor.is_byte, processor.is_unused)
        table |= {
            "scores": [round(processor.get_score(i), 6) for i in ids],
            "bytes": [i for i in ids if processor.is_byte(i)],
            "mergeable": [i for i in ids if not any(test(i) for test in special)],
        }
        # Tags precede the bytes.
        table["tags"] = [i for i in table["mergeable"] if i < table["bytes"][0]]
    return table
