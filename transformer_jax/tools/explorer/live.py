"""A trained model for the page: settings, parameters in 16 or 8 bits, and tokenizers, for the JavaScript in ``live``."""

import inspect
import re
from dataclasses import replace
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
from transformer_jax.data.tokenizers.subword import sentencepiece_processor
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask

WORKER = ("tensor", "attention", "model", "tokenizer", "search", "reading", "worker")
"""The modules of the worker, in order: one script."""

# Choices of settings that the JavaScript implements.
IMPLEMENTED = {
    "model.kind": ("transformer",),
    "model.normalization": ("post", "pre"),
    "model.norm": ("layer_norm",),
    "model.positions": ("sinusoidal", "fairseq", "learned", "none"),
    "model.feed_forward": ("relu", "gelu", "exact_gelu", "silu", "gated_gelu", "gated_silu"),
    "model.attention": ("multi_head", "biased", "unscaled"),
    "model.mixers": ("", "attention"),
    "tokenizer.kind": ("bpe", "unigram", "word", "character", "byte"),
    "decoding.search": ("beam",),
    "decoding.stop": ("exact",),
    "decoding.diverse_groups": (1,),
}
FLOAT16_BYTES, INT8_BYTES = 8 << 20, 64 << 20
"""Largest size of the parameters in 16 bits, and in 8 bits."""
INT8_STEPS = 127
LONGEST, LONGEST_SOURCE = 1 << 30, 1024
"""Maximum number of source tokens in the page; longer ones take minutes."""


class LiveModel(NamedTuple):
    """A model as the page stores it: ``description`` is JSON, ``parameters`` the bytes of all arrays in order."""

    description: dict[str, Any]
    parameters: bytes


def worker_source() -> str:
    """The script of the worker."""
    return "\n".join(live_script(f"{name}.js") for name in WORKER)


def live_script(name: str) -> str:
    """A file of the live page."""
    return files("transformer_jax.tools.explorer").joinpath("live", name).read_text(encoding="utf-8")


def code_of_tour() -> dict[str, str]:
    """File and line of the code that each step of the guided tour names as ``module:object``."""
    found = {}
    for step, module, name in re.findall(r'(\w+): "([\w.]+):([\w.]+)"', live_script("tour.js")):
        code: Any = reduce(getattr, name.split("."), import_module(f"transformer_jax.{module}"))
        line = inspect.getsourcelines(inspect.unwrap(code))[1]
        found[step] = f"transformer_jax/{module.replace('.', '/')}.py:{line} {name}"
    return found


def require_live(config: ExperimentConfig) -> None:
    """Raises ConfigError, with the setting, unless the JavaScript implements the model, its tokenizer and its search."""
    if config.task != "translation":
        raise ConfigError(f"--live: a run of task={config.task}; the live page translates, with task=translation")
    for name, choices in IMPLEMENTED.items():
        block, _, setting = name.partition(".")
        value = getattr(getattr(config, block), setting)
        if value not in choices:
            known = ", ".join(str(choice) or "''" for choice in choices)
            raise ConfigError(f"--live: {name}={value} is not implemented in the page; it implements {known}")


def live_model(trained: TrainedRun[TranslationTask], texts: list[tuple[str, str]]) -> LiveModel:
    """The model of a run that ``require_live`` accepts.

    ``texts``: pairs for which the largest difference of the logits to the model in float32 is measured and stored. Raises
    DataError for parameters that have no 16-bit value, ConfigError for too many.
    """
    config, model = trained.config, trained.config.model
    entries, parameters, stored = pack_parameters(trained.params)
    tokenizers = [trained.tokenizers.source, trained.tokenizers.target]
    if tokenizers[0] is tokenizers[1]:
        tokenizers.pop()
    settings = {
        "width": model.d_model,
        "inner": model.d_ff,
        "heads": model.num_heads,
        "keySize": model.head_key_size,
        "valueSize": model.head_value_size,
        "encoderLayers": model.num_encoder_layers,
        "decoderLayers": model.num_decoder_layers,
        "isScaled": model.attention != "unscaled",
        "normalization": model.normalization,
        "positions": model.positions,
        "feedForward": model.feed_forward,
        "embedding": model.embedding,
        "epsilon": model.norm_epsilon,
        "hasLogitsBias": model.logits_bias,
        "tying": model.tying,
        "maxExtraTokens": config.decoding.max_extra_tokens,
        "maxSourceTokens": min(config.decoding.max_source_tokens + 1, model.longest_sequence or LONGEST_SOURCE),
        "longest": model.longest_sequence or LONGEST,
    }
    return LiveModel(
        {
            "settings": settings,
            "entries": entries,
            "tokenizers": [tokenizer_table(each) for each in tokenizers],
            "search": {"beamWidth": config.decoding.beam_width, "lengthPenalty": config.decoding.length_penalty},
            "bits": 8 if "scales" in entries[0] else 16,
            "logitsError": logits_error(trained, stored, texts),
        },
        parameters,
    )


def pack_parameters(params: PyTree) -> tuple[list[dict[str, Any]], bytes, PyTree]:
    """Descriptions of all arrays by path, their bytes in that order, and the values that these stand for."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(jax.device_get(params))
    arrays = {"/".join(str(key.key) for key in path): np.asarray(array, np.float32) for path, array in leaves}
    size = sum(array.size for array in arrays.values())
    if size > INT8_BYTES:
        raise ConfigError(f"--live: {size:,} parameters; a page holds at most {INT8_BYTES:,}")
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


def logits_error(trained: TrainedRun[TranslationTask], stored: PyTree, texts: list[tuple[str, str]]) -> float:
    """The largest difference of teacher-forced logits between the run's and the ``stored`` parameters, both in float32."""
    tokenizers = trained.tokenizers
    config = replace(trained.config.model, compute_dtype="float32")
    model = build_model(config, tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    largest = 0.0
    for source, target in texts:
        sides = [
            Tokens.from_ids(jnp.asarray([[*each.encode(text), EOS_ID]], jnp.int32))
            for each, text in zip(tokenizers, (source, target), strict=True)
        ]
        exact, rounded = (call(model, params, "__call__", *sides, train=False) for params in (trained.params, stored))
        largest = max(largest, float(jnp.abs(exact - rounded).max()))
    return largest


def tokenizer_table(tokenizer: Tokenizer) -> dict[str, Any]:
    """The vocabulary of a tokenizer for ``tokenizer.js``."""
    ids = range(tokenizer.vocabulary_size)
    table: dict[str, Any] = {"kind": tokenizer.kind, "pieces": tokenizer.pieces(list(ids))}
    if tokenizer.kind in ("bpe", "unigram"):
        processor = sentencepiece_processor(tokenizer.to_bytes())
        special = (processor.is_control, processor.is_unknown, processor.is_byte, processor.is_unused)
        table |= {
            "scores": [round(processor.get_score(i), 6) for i in ids],
            "bytes": [i for i in ids if processor.is_byte(i)],
            "mergeable": [i for i in ids if not any(test(i) for test in special)],
        }
    return table
