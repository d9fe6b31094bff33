"""Small models with an idea in them, on which its properties are checked."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import (
    ExperimentConfig,
    MeshConfig,
    from_dict,
    hyperparameters_of,
    scheduled_hyperparameters_of,
)
from transformer_jax.decoding.beam_search import Hypotheses, beam_search, select_beams
from transformer_jax.models.build import build_decoder_only, build_model
from transformer_jax.models.devices import ANY_DEVICES, Devices
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Batch, DecodeCache, Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.conform.ideas import Idea, with_values
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.state import TrainState
from transformer_jax.training.update import Update

VOCABULARY = 24
# Ids below are PAD, BOS, EOS and the unknown word.
FIRST_WORD = 4
# Rows of every batch. Properties share compiled programs of equal rows and lengths.
ROWS = 8
LAYERS: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0, "embedding_dropout": 0.0}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
SIZES: dict[str, dict[str, Any]] = {
    "translation": {**LAYERS, **ONE_LAYER, "tying": "none"},
    "language_model": {**LAYERS, "num_layers": 2, "tying": "none"},
    "rnn": {
        **{"kind": "rnn", "d_embedding": 16, "d_hidden": 16, "d_attention": 16},
        **{"dropout": 0.0, "embedding_dropout": 0.0},
    },
}
"""The sizes of the models in which ideas are checked, without dropout, which hides differences."""
# Location attention reads at most 128 source tokens, with the end of the sentence.
BESIDE: dict[str, Any] = {"language_model": {"task": "language_model"}, "rnn": {"data": {"max_source_tokens": 127}}}
"""Settings outside of the model block that a model needs."""
SMALL_PARTS: dict[str, dict[str, Any]] = {
    "gated_delta_net": {"chunk": 2},
    "gated_linear_attention": {"chunk": 2},
    "latent": {"width": 8, "query_width": 8, "rotary_size": 2, "has_norms": True},
    "mixture_of_experts": {"num_experts": 4},
    "multi_token": {"tokens": 2},
    "mup": {"base_width": 8, "base_key_size": 2},
    "shaw": {"max_distance": 2},
    "sliding_window": {"size": 3},
    "soap": {"precondition_every": 2, "max_size": 16},
    "t5": {"buckets": 4, "max_distance": 4},
}
"""Settings with which parts of the kit act among a few tokens."""
TRAINING: dict[str, Any] = {
    "tokenizer": {"vocabulary_size": VOCABULARY},
    "optimizer": {"schedule": "constant", "learning_rate": 0.05, "warmup_updates": 1, "epsilon": 0.01},
    "training": {"num_updates": 40},
}
"""A large epsilon: Adam would blow rounding of tiny gradients up to whole updates."""
BY_SGD = {"optimizer": {"name": "sgd", "learning_rate": 0.5}}
"""Settings of trials of models: the parameters after an update show their gradient."""
# Standard deviation of the noise in initial parameters: parameters that begin at 0 or 1 act too.
NOISE = 0.2


def trial_config(model: str, values: Mapping[str, Any], *, small: bool = False) -> ExperimentConfig:
    """Return the settings of a small ``model`` (of ``SIZES``) with ``values``, nested by block.

    If ``small``, its parts have the settings of ``SMALL_PARTS`` unless ``values`` has others.
    """
    merged = with_values({**TRAINING, "model": SIZES[model], **BESIDE.get(model, {})}, values)
    if not small:
        return from_dict(merged)
    parts = {name: SMALL_PARTS[name] for name in from_dict(merged).parts if name in SMALL_PARTS}
    return from_dict(with_values({"parts": parts}, merged))


class Sentences(NamedTuple):
    """Sources and targets [B, L] of equal or unequal lengths, padded on the right."""

    source: np.ndarray
    target: np.ndarray

    @property
    def batch(self) -> Batch:
        """One pair a row."""
        return Batch(Tokens.from_ids(self.source), Tokens.from_ids(self.target))


@contextmanager
def optimized(is_optimized: bool) -> Iterator[None]:
    """Make XLA optimize the programs compiled inside, or compile them faster."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", not is_optimized)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def sentences(rows: int, length: int, *, unequal: bool = True) -> Sentences:
    """Return random pairs of ``length`` tokens. If ``unequal``, every other pair is shorter."""
    ids = np.random.default_rng(length).integers(FIRST_WORD, VOCABULARY, (2, rows, length)).astype(np.int32)
    if unequal and length > 1:
        ids[0, 1::2, length // 2 :] = 0
        ids[1, 1::2, (length + 1) // 2 :] = 0
    return Sentences(*ids)


class Trial:
    """A small model of ``config``, its parameters with noise, loss and update, compiled once."""

    def __init__(
        self,
        config: ExperimentConfig,
        on: Devices = ANY_DEVICES,
        params: PyTree = None,
        *,
        idea: Idea | None = None,
        base: ExperimentConfig | None = None,
    ) -> None:
        """Take ``params`` instead of initial ones, and the ``idea`` to check with its ``base``."""
        self.config, self.on, self.has_source = config, on, config.task == "translation"
        # Trials of combinations have no idea, and its properties are not checked on them.
        self.idea: Any = idea
        self.base: Any = base
        if params is not None:
            self.params = params
        self._logits = jax.jit(self.teacher_forced)
        self._loss_and_gradient = jax.jit(jax.value_and_grad(self.loss))
        self._decode = jax.jit(self._logits_of_steps)
        self._search = jax.jit(self._hypotheses, static_argnums=(3, 4))

    @cached_property
    def params(self) -> PyTree:
        random = np.random.default_rng(1)
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf + NOISE * random.normal(size=leaf.shape), leaf.dtype),
            self.initial_state.params,
        )

    def with_model(self, **settings: Any) -> "Trial":
        """Return the same parameters in a model of other settings."""
        return Trial(replace(self.config, model=replace(self.config.model, **settings)), self.on, self.params)

    @cached_property
    def model(self) -> Module:
        model, parts = self.config.model, self.config.parts
        if self.has_source:
            return build_model(model, VOCABULARY, VOCABULARY, self.on, parts=parts)
        return build_decoder_only(model, VOCABULARY, self.on, parts=parts)

    def teacher_forced(self, params: PyTree, batch: Batch) -> Array:
        """Return the logits [B, T, V] of every token after the tokens before it."""
        logits: Array = call(self.model, params, "__call__", *(batch if self.has_source else batch[1:]), train=False)
        return logits

    def logits(self, batch: Batch) -> np.ndarray:
        return np.asarray(self._logits(self.params, batch))

    def loss(self, params: PyTree, batch: Batch) -> Array:
        """Return the mean square of the logits of tokens, a loss to which all logits count."""
        weights = batch.target.segments != 0
        squares = jnp.where(weights[..., None], jnp.square(self.teacher_forced(params, batch)), 0.0)
        return jnp.sum(squares) / jnp.sum(weights)

    def loss_and_gradient(self, pairs: Sentences) -> PyTree:
        """Return ``loss`` and its gradient by a program that XLA optimizes."""
        with optimized(True):
            return self._loss_and_gradient(self.params, pairs.batch)

    def start(self, params: PyTree, inputs: Array, beams: int, length: int) -> DecodeCache:
        """Return the cache after sources [B, S] or, in a language model, prompts [B, P]."""
        if self.has_source:
            inputs = call(self.model, params, "encode", Tokens.from_ids(inputs), train=False)
        cache: DecodeCache = call(self.model, params, "init_cache", inputs, beam_width=beams, max_length=length)
        return cache

    def _logits_of_steps(self, params: PyTree, inputs: Array, tokens_LBW: Array, parents_LBW: Array) -> Array:
        length, _, beams = tokens_LBW.shape

        def step(cache: DecodeCache, tokens: tuple[Array, Array]) -> tuple[DecodeCache, Array]:
            token_ids, parents = tokens
            cache = cache._replace(per_beam=select_beams(cache.per_beam, parents))
            logits, cache = call(self.model, params, "decode_step", token_ids, cache)
            return cache, logits

        return lax.scan(step, self.start(params, inputs, beams, length), (tokens_LBW, parents_LBW))[1]

    def decoded(self, inputs: AnyArray, tokens_LBW: AnyArray, parents_LBW: AnyArray) -> np.ndarray:
        """Return logits [L, B, W, V] of tokens. Beam w continues beam ``parents_LBW[:, :, w]``."""
        return np.asarray(self._decode(self.params, inputs, tokens_LBW, parents_LBW))

    def _hypotheses(self, params: PyTree, inputs: Array, max_lengths: Array, length: int, beams: int) -> Hypotheses:
        return beam_search(
            lambda token_ids, cache: call(self.model, params, "decode_step", token_ids, cache),
            self.start(params, inputs, beams, length),
            max_lengths=max_lengths,
            max_length=length,
            beam_width=beams,
            length_penalty=0.6,
        )

    def searched(self, sources: AnyArray, beams: int) -> Hypotheses:
        """Search as many tokens as ``sources`` have. A language model continues empty prompts."""
        inputs = sources if self.has_source else np.zeros((len(sources), 0), np.int32)
        lengths = np.sum(sources != 0, axis=1)
        hypotheses: Hypotheses = jax.device_get(self._search(self.params, inputs, lengths, sources.shape[1], beams))
        return hypotheses

    def update_on(self, mesh_config: MeshConfig) -> Update:
        """Return the update of the settings on a mesh."""
        mesh = make_mesh(mesh_config, jax.devices()[: math.prod(mesh_config.sizes.values())])
        objective = objective_of(self.config, mesh)
        return Update(self.config, objective.loss, objective.init_params, mesh, objective.update_rule)

    @cached_property
    def update(self) -> Update:
        return self.update_on(MeshConfig(data=1))

    @cached_property
    def initial_state(self) -> TrainState:
        """The state before the first update, on the host, for updates on any mesh."""
        state: TrainState = jax.device_get(self.update.initial_state(0))
        return state

    def updated(
        self, rows: PyTree, count: int, update: Update | None = None, state: TrainState | None = None, **changed: Any
    ) -> tuple[TrainState, list[float]]:
        """Return the state after ``count`` updates with these rows, and their losses.

        ``changed`` are hyperparameters.
        """
        update = update or self.update
        shardings = jax.tree.map(lambda leaf: leaf.sharding, update.state_shapes)
        state = jax.device_put(self.initial_state if state is None else state, shardings)
        hyperparameters = scheduled_hyperparameters_of(self.config)._replace(**changed)
        hyperparameters = put_hyperparameters(hyperparameters, update.mesh)
        rows, losses = put_rows(rows, update.mesh), []
        for _ in range(count):
            state, metrics = update.jitted(state, rows, hyperparameters)
            losses.append(float(metrics.sums.loss))
        return state, losses

    def loss_sums(self, params: PyTree, rows: PyTree) -> LossSums:
        objective = objective_of(self.config, single_mesh())
        sums: LossSums = objective.loss(params, rows, jax.random.key(0), hyperparameters_of(self.config))
        return sums

    def rows(self, length: int, count: int = ROWS, *, unequal: bool = True) -> PyTree:
        batch = sentences(count, length, unequal=unequal).batch
        return batch if self.has_source else batch.target


def single_mesh() -> jax.sharding.Mesh:
    return make_mesh(MeshConfig(data=1), jax.local_devices()[:1])
