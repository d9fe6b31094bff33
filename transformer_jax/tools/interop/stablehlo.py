"""Export of translation models as StableHLO programs by ``jax.export``; they run in any process with jax alone.

``encode`` returns hidden states, ``start`` encodes and initializes the KV cache of the decoder, ``step`` reads a token in each
beam, ``search`` is the whole beam search. All take the parameters of ``parameters.npz`` as a dictionary by path. The number of
rows is symbolic except for ``search``; lengths are static, like the tables of positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Int, PyTree
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.decoding.beam_search import beam_search, length_penalty_divisor
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import Module, call
from transformer_jax.runs.run_directory import write_json
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.interop.imported_model import require_same_shapes
from transformer_jax.tools.interop.opened_model import Example, OpenedModel, until_eos
from transformer_jax.tools.interop.parity import (
    NEAR_TIE,
    Check,
    Counterpart,
    Tolerance,
    require_same_tokenizers,
    token_log_probabilities,
)
from transformer_jax.tools.interop.weight_files import read_object, value_of
from transformer_jax.training.sharding import path_of

PLATFORMS = ("cpu", "cuda", "tpu")
PROGRAMS = ("encode", "start", "step", "search")
# Decoding settings that are compiled into the programs.
SEARCH = ("beam_width", "length_penalty", "stop", "max_extra_tokens")
DESCRIPTION, PARAMETERS, TOKENIZER = "stablehlo.json", "parameters.npz", "tokenizer"
Named = dict[str, Array]


class Programs:
    """The exported functions of a model, for sources of at most ``length`` tokens, EOS included.

    ``sources``: shape of the sources with a symbolic number of rows; ``cache``: shapes of the KV cache.
    """

    def __init__(self, model: OpenedModel, length: int) -> None:
        self.decoding = model.config.decoding
        if self.decoding.search != "beam":
            raise ConfigError(f"decoding.search: {self.decoding.search} cannot be exported; set it to beam")
        if self.decoding.mbr:
            raise ConfigError(f"decoding.mbr: {self.decoding.mbr} cannot be exported; set it to ''")
        self.max_length = length + self.decoding.max_extra_tokens
        source, target = (tokenizer.vocabulary_size for tokenizer in model.tokenizers)
        self._model: Module = build_model(model.config.model, source, target, parts=model.config.parts)
        self._tree = model.params
        (rows,) = jax_export.symbolic_shape("b")
        self.sources = jax.ShapeDtypeStruct((rows, length), jnp.int32)
        self.cache = jax.eval_shape(self._cache, model.named, self.sources)

    def encode(self, named: Named, source_ids: Int[Array, "B S"]) -> Array:
        """Hidden states [B, S, D] of sources that end with EOS (2) and are padded with 0."""
        tokens = Tokens.from_ids(source_ids)
        hidden: Array = call(self._model, self._params(named), "encode", tokens, train=False).hidden
        return hidden

    def start(self, named: Named, source_ids: Int[Array, "B S"]) -> tuple[Array, ...]:
        """The leaves of the cache before the first token."""
        return tuple(jax.tree.leaves(self._cache(named, source_ids)))

    def step(
        self, named: Named, token_ids: Int[Array, "B W"], leaves: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...]]:
        """Logits [B, W, V] and cache leaves after one more token in each beam; the first token is BOS (1)."""
        cache = jax.tree.unflatten(jax.tree.structure(self.cache), leaves)
        logits, after = call(self._model, self._params(named), "decode_step", token_ids, cache)
        return logits, tuple(jax.tree.leaves(after))

    def search(self, named: Named, source_ids: Int[Array, "B S"]) -> tuple[Array, Array]:
        """The best translation of each source [B, T], padded with 0, and its log-probability [B]."""
        found = beam_search(
            partial(call, self._model, self._params(named), "decode_step"),
            self._cache(named, source_ids),
            max_lengths=jnp.sum(source_ids != 0, axis=1, dtype=jnp.int32) + self.decoding.max_extra_tokens,
            max_length=self.max_length,
            beam_width=self.decoding.beam_width,
            length_penalty=self.decoding.length_penalty,
            num_results=1,
            stop=self.decoding.stop,
        )
        return found.ids[:, 0], found.log_probs[:, 0]

    def _cache(self, named: Named, source_ids: Int[Array, "B S"]) -> PyTree:
        params = self._params(named)
        memory = call(self._model, params, "encode", Tokens.from_ids(source_ids), train=False)
        sizes = {"beam_width": self.decoding.beam_width, "max_length": self.max_length}
        return call(self._model, params, "init_cache", memory, **sizes)

    def _params(self, named: Named) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, leaf: named[path_of(path)], self._tree)


def export(
    model: OpenedModel, folder: Path, texts: Sequence[str] = (), *, batch_size: int = 8, source_length: int = 128
) -> None:
    """Writes programs for cpu, cuda and tpu, parameters and tokenizers; raises ConfigError for unsupported models."""
    del texts
    if not model.translates:
        raise ConfigError(f"--format: stablehlo takes task=translation, not {model.config.task}; use safetensors")
    if model.tokenizers.target.encode(""):
        problem = "stablehlo does not support language tokens at the beginning of translations"
        raise ConfigError(f"--format: {problem}; use ctranslate2")
    programs = Programs(model, source_length)
    sources = programs.sources
    beams = jax.ShapeDtypeStruct((sources.shape[0], programs.decoding.beam_width), jnp.int32)
    functions: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (programs.encode, (sources,)),
        (programs.start, (sources,)),
        (programs.step, (beams, tuple(jax.tree.leaves(programs.cache)))),
        (programs.search, (jax.ShapeDtypeStruct((batch_size, source_length), jnp.int32),)),
    ]
    named = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in model.named.items()}
    for function, arguments in functions:
        exported = jax_export.export(jax.jit(function), platforms=PLATFORMS)(named, *arguments)
        (folder / f"{function.__name__}.bin").write_bytes(exported.serialize())
    np.savez(folder / PARAMETERS, **model.named)  # type: ignore[arg-type]  # names are paths
    save_tokenizers(model.tokenizers, folder / TOKENIZER)
    decoding = {name: getattr(programs.decoding, name) for name in SEARCH}
    # "room" is the maximum length of a target.
    shapes = {"batch_size": batch_size, "source_length": source_length, "room": programs.max_length}
    write_json(folder / DESCRIPTION, {"platforms": PLATFORMS, **shapes, **decoding, "steps": list(model.steps)})


def counterpart_of(folder: Path) -> type[Counterpart] | None:
    """The counterpart class if ``folder`` has programs, else None."""
    return StableHloCounterpart if (folder / DESCRIPTION).is_file() else None


class StableHloCounterpart(Counterpart):
    """The programs, run step by step and as a whole search on the local devices."""

    name = "StableHLO"
    longest_source: int
    longest_target: int
    # Of logits; measured: about 3e-6.
    tolerance = Tolerance(1e-5, 1e-5)

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        path = folder / DESCRIPTION
        described = read_object(path, "a folder that export --format=stablehlo wrote")
        self._rows, self.longest_source, self.longest_target, self._beams = (
            value_of(described, name, int, path) for name in ("batch_size", "source_length", "room", "beam_width")
        )
        require_same_tokenizers(folder / TOKENIZER, model)
        try:
            plain = model.config.decoding.with_beams(1)
            self._decoding = replace(plain, **{name: described[name] for name in SEARCH})
        except (KeyError, TypeError, ConfigError) as error:
            raise DataError(f"{path}: no settings of the search: {error}; export the model again") from None
        try:
            self._encode, self._start, self._step, self._search = (
                jax.jit(jax_export.deserialize(bytearray((folder / f"{name}.bin").read_bytes())).call)
                for name in PROGRAMS
            )
            with np.load(folder / PARAMETERS) as stored:
                self._named = jax.device_put(dict(stored))
        # A damaged file can raise any error.
        except Exception as error:
            raise DataError(f"{folder}: programs are missing or damaged: {str(error)[:200]}") from None
        require_same_shapes(self._named, {name: leaf.shape for name, leaf in model.named.items()}, folder / PARAMETERS)

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        results: list[np.ndarray] = []
        for first in range(0, len(examples), self._rows):
            rows = examples[first : first + self._rows]
            targets = self._padded([row.target for row in rows], max(len(row.target) for row in rows))
            steps = []
            logits, leaves = self._begun([row.source for row in rows])
            for tokens in targets.T:
                steps.append(logits)
                logits, leaves = self._after(tokens, leaves)
            stacked = np.stack(steps, axis=1)
            results += [stacked[index, : len(row.target)] for index, row in enumerate(rows)]
        return results

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        results: list[list[int]] = []
        for first in range(0, len(sources), self._rows):
            rows = sources[first : first + self._rows]
            chosen: list[np.ndarray] = []
            logits, leaves = self._begun(rows)
            while len(chosen) < min(longest, self.longest_target):
                logits[:, [PAD_ID, BOS_ID]] = -np.inf
                chosen.append(logits.argmax(axis=-1))
                if np.all(np.any(np.stack(chosen) == EOS_ID, axis=0)):
                    break
                logits, leaves = self._after(chosen[-1], leaves)
            results += [until_eos(ids) for ids in np.stack(chosen, axis=1)[: len(rows)].tolist()]
        return results

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Compares hidden states of ``encode`` and translations of ``search``; different ones must have equal scores."""
        del texts
        encoded = jax.jit(lambda params, tokens: call(model.model, params, "encode", tokens, train=False))
        ours = model.translator(self._decoding).translate_ids(model.params, [each.source for each in examples])
        near, alike = 0, 0
        for first in range(0, len(examples), self._rows):
            rows = examples[first : first + self._rows]
            sources = self._padded([row.source for row in rows], self.longest_source)
            hidden = np.asarray(encoded(model.params, Tokens.from_ids(sources)).hidden)
            apart = np.abs(hidden - np.asarray(self._encode(self._named, sources)))
            apart = np.where(sources[..., None] == PAD_ID, 0, apart)[: len(rows)]
            near += int(np.sum(apart.max(axis=(1, 2)) <= self.tolerance.largest))
            ids = np.asarray(self._search(self._named, sources)[0])
            for row, found, best in zip(rows, ids, ours[first : first + self._rows], strict=False):
                theirs = found[found != PAD_ID].tolist()
                alike += theirs == best[0].token_ids or self._scores_as_well(model, row, theirs, best[0].score)
        return [Check("hidden states", near, len(examples)), Check("beam search", alike, len(examples))]

    def _scores_as_well(self, model: OpenedModel, row: Example, theirs: list[int], score: float) -> bool:
        example = row._replace(target=theirs)
        log_probability = token_log_probabilities(model.logits([example]), [example], never=())[0].sum()
        found = log_probability / float(length_penalty_divisor(jnp.asarray(len(theirs)), self._decoding.length_penalty))
        return bool(abs(found - score) < NEAR_TIE)

    def _begun(self, sources: Sequence[list[int]]) -> tuple[np.ndarray, Any]:
        """Logits [B, V] of the first token, and the cache after BOS."""
        leaves = self._start(self._named, self._padded(sources, self.longest_source))
        return self._after(np.full(self._rows, BOS_ID), leaves)

    def _after(self, tokens: np.ndarray, leaves: Any) -> tuple[np.ndarray, Any]:
        """Logits [B, V] and cache after one more token in each row, the same in every beam."""
        beams = np.broadcast_to(tokens[:, None], (self._rows, self._beams)).astype(np.int32)
        logits, leaves = self._step(self._named, beams, leaves)
        return np.array(logits[:, 0]), leaves

    def _padded(self, rows: Sequence[list[int]], width: int) -> np.ndarray:
        # Empty rows consist of EOS.
        ids = np.full((self._rows, width), PAD_ID, np.int32)
        ids[:, 0] = EOS_ID
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
        return ids
