"""Translation as StableHLO programs, which ``jax.export`` writes and any process with jax alone can run.

``encode`` gives hidden states, ``start`` encodes and makes the cache of a decoder, ``step`` reads a token in every beam,
``search`` is the whole beam search. All take the parameters of ``parameters.npz`` as a dictionary by path. The number of rows
is symbolic but for ``search``; lengths are static, since tables of positions have them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.decoding.beam_search import beam_search
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import Module, call
from transformer_jax.runs.run_directory import write_json
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.interop.opened_model import OpenedModel
from transformer_jax.training.sharding import path_of

PLATFORMS = ("cpu", "cuda", "tpu")
PROGRAMS = ("encode", "start", "step", "search")
# Settings of decoding that are compiled into the programs.
SEARCH = ("beam_width", "length_penalty", "stop", "max_extra_tokens")
DESCRIPTION, PARAMETERS, TOKENIZER = "stablehlo.json", "parameters.npz", "tokenizer"
Named = dict[str, Array]


class Programs:
    """The functions of a model that are exported, for sources of at most ``length`` tokens, EOS included.

    ``sources`` is their shape for any number of rows, ``cache`` that of the decoder's cache.
    """

    def __init__(self, model: OpenedModel, length: int) -> None:
        self.decoding = model.config.decoding
        if self.decoding.diverse_groups > 1:
            raise ConfigError("decoding.diverse_groups: the exported search has one group; set it to 1")
        self.room = length + self.decoding.max_extra_tokens
        source, target = (tokenizer.vocabulary_size for tokenizer in model.tokenizers)
        self._model: Module = build_model(model.config.model, source, target)
        self._tree = model.params
        (rows,) = jax_export.symbolic_shape("b")
        self.sources = jax.ShapeDtypeStruct((rows, length), jnp.int32)
        self.cache = jax.eval_shape(self._cache, model.named, self.sources)

    def encode(self, named: Named, source_ids: Int[Array, "B S"]) -> Array:
        """Hidden states [B, S, D] of sources that end with EOS (2) and are padded with 0."""
        hidden: Array = call(
            self._model, self._params(named), "encode", Tokens.from_ids(source_ids), train=False
        ).hidden
        return hidden

    def start(self, named: Named, source_ids: Int[Array, "B S"]) -> tuple[Array, ...]:
        """The leaves of the cache before the first token."""
        return tuple(jax.tree.leaves(self._cache(named, source_ids)))

    def step(
        self, named: Named, token_ids: Int[Array, "B W"], leaves: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...]]:
        """Logits [B, W, V] after one more token in each beam, at first BOS (1), and the leaves after it."""
        cache = jax.tree.unflatten(jax.tree.structure(self.cache), leaves)
        logits, after = call(self._model, self._params(named), "decode_step", token_ids, cache)
        return logits, tuple(jax.tree.leaves(after))

    def search(self, named: Named, source_ids: Int[Array, "B S"]) -> tuple[Array, Array]:
        """The best translation of each source [B, T], padded with 0, and its log-probability [B]."""
        found = beam_search(
            partial(call, self._model, self._params(named), "decode_step"),
            self._cache(named, source_ids),
            max_lengths=jnp.sum(source_ids != 0, axis=1, dtype=jnp.int32) + self.decoding.max_extra_tokens,
            max_length=self.room,
            beam_width=self.decoding.beam_width,
            length_penalty=self.decoding.length_penalty,
            num_results=1,
            stop=self.decoding.stop,
        )
        return found.ids[:, 0], found.log_probs[:, 0]

    def _cache(self, named: Named, source_ids: Int[Array, "B S"]) -> PyTree:
        params = self._params(named)
        memory = call(self._model, params, "encode", Tokens.from_ids(source_ids), train=False)
        return call(
            self._model, params, "init_cache", memory, beam_width=self.decoding.beam_width, max_length=self.room
        )

    def _params(self, named: Named) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, leaf: named[path_of(path)], self._tree)


def export(
    model: OpenedModel, folder: Path, texts: Sequence[str] = (), *, batch_size: int = 8, source_length: int = 128
) -> None:
    """Writes programs for cpu, cuda and tpu, the parameters and the tokenizers; raises ConfigError for a language model."""
    del texts
    if not model.translates:
        raise ConfigError(f"--format: stablehlo takes task=translation, not {model.config.task}; use safetensors")
    if model.tokenizers.target.encode(""):
        raise ConfigError(
            "--format: stablehlo cannot begin every translation with the token of a language; use ctranslate2"
        )
    programs = Programs(model, source_length)
    sources = programs.sources
    beams = jax.ShapeDtypeStruct((sources.shape[0], programs.decoding.beam_width), jnp.int32)
    for function, arguments in (
        (programs.encode, (sources,)),
        (programs.start, (sources,)),
        (programs.step, (beams, tuple(jax.tree.leaves(programs.cache)))),
        (programs.search, (jax.ShapeDtypeStruct((batch_size, source_length), jnp.int32),)),
    ):
        (folder / f"{function.__name__}.bin").write_bytes(_serialized(function, model, arguments))
    np.savez(folder / PARAMETERS, **model.named)  # type: ignore[arg-type]  # names are paths
    save_tokenizers(model.tokenizers, folder / TOKENIZER)
    decoding = {name: getattr(programs.decoding, name) for name in SEARCH}
    shapes = {"batch_size": batch_size, "source_length": source_length, "room": programs.room}
    write_json(folder / DESCRIPTION, {"platforms": PLATFORMS, **shapes, **decoding, "steps": list(model.steps)})


def _serialized(function: Callable[..., Any], model: OpenedModel, arguments: tuple[Any, ...]) -> bytes:
    named = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in model.named.items()}
    exported = jax_export.export(jax.jit(function), platforms=PLATFORMS)(named, *arguments)
    return bytes(exported.serialize())
