"""Small models with an idea in them, on which its properties are checked."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict, hyperparameters_of
from transformer_jax.models.build import build_decoder_only, build_model
from transformer_jax.models.devices import ANY_DEVICES, Devices
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Batch, DecodeCache, Tokens
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.step import LossFunction
from transformer_jax.training.update import Update

VOCABULARY = 24
# Words of a sentence; ids below are PAD, BOS, EOS and the unknown word.
FIRST_WORD = 4
LAYERS: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0, "embedding_dropout": 0.0}
TWO_LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
SIZES: dict[str, dict[str, Any]] = {
    "translation": {**LAYERS, **TWO_LAYERS, "tying": "none"},
    "language_model": {**LAYERS, "num_layers": 2, "tying": "none"},
    "rnn": {
        "kind": "rnn",
        "d_embedding": 16,
        "d_hidden": 16,
        "d_attention": 16,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
    },
}
"""The models in which ideas are checked: their sizes, without dropout, which would hide differences."""
TRAINING: dict[str, Any] = {
    "tokenizer": {"vocabulary_size": VOCABULARY},
    "optimizer": {"schedule": "constant", "learning_rate": 0.05, "warmup_updates": 1, "epsilon": 0.01},
    "training": {"num_updates": 40},
}
"""A large epsilon: Adam would blow rounding of tiny gradients up to whole updates."""
# Standard deviation of what is added to initial parameters, so that those that begin at 0 or 1 act.
NOISE = 0.2


def trial_config(model: str, values: Mapping[str, Any]) -> ExperimentConfig:
    """The settings of a small ``model`` (a key of ``SIZES``), then ``values``, nested by block."""
    base: dict[str, Any] = {**TRAINING, "model": SIZES[model]}
    if model == "language_model":
        base["task"] = "language_model"
    merged = {**base, **{name: each for name, each in values.items() if not isinstance(each, Mapping)}}
    for block, settings in values.items():
        if isinstance(settings, Mapping):
            merged[block] = {**base.get(block, {}), **settings}
    return from_dict(merged)


class Sentences(NamedTuple):
    """Sources and targets [B, L] of equal or unequal lengths, padded on the right."""

    source: np.ndarray
    target: np.ndarray

    @property
    def batch(self) -> Batch:
        """One pair a row."""
        return Batch(Tokens.from_ids(self.source), Tokens.from_ids(self.target))


def sentences(rows: int, length: int, *, unequal: bool = True) -> Sentences:
    """Random pairs of at most ``length`` tokens a side; if ``unequal``, every other pair is shorter."""
    ids = np.random.default_rng(length).integers(FIRST_WORD, VOCABULARY, (2, rows, length)).astype(np.int32)
    if unequal and length > 1:
        ids[0, 1::2, length // 2 :] = 0
        ids[1, 1::2, (length + 1) // 2 :] = 0
    return Sentences(*ids)


class Trial:
    """A small model of ``config``, its parameters with noise, and its loss."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.config, self.has_source = config, config.task == "translation"

    @cached_property
    def params(self) -> PyTree:
        """Initial parameters plus noise."""
        params = jax.jit(objective_of(self.config, single_mesh()).init_params)(jax.random.key(0))
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(jax.random.key(1), len(leaves))
        noisy = [leaf + NOISE * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
        return jax.tree.unflatten(structure, noisy)

    def with_model(self, **settings: Any) -> "Trial":
        """The same parameters in a model of other settings."""
        other = Trial(replace(self.config, model=replace(self.config.model, **settings)))
        other.__dict__["params"] = self.params
        return other

    def model(self, on: Devices = ANY_DEVICES) -> Module:
        """The model on these devices."""
        build = build_model if self.has_source else build_decoder_only
        sizes = (VOCABULARY, VOCABULARY) if self.has_source else (VOCABULARY,)
        return build(self.config.model, *sizes, on, parts=self.config.parts)

    def logits(self, pairs: Sentences | Batch, params: PyTree = None, on: Devices = ANY_DEVICES) -> Array:
        """Teacher-forced logits [B, T, V]."""
        batch = pairs.batch if isinstance(pairs, Sentences) else pairs
        model, inputs = self.model(on), batch if self.has_source else batch[1:]
        run = jax.jit(lambda params, *inputs: call(model, params, "__call__", *inputs, train=False))
        result: Array = run(self.params if params is None else params, *inputs)
        return result

    def loss_and_gradient(self, pairs: Sentences, on: Devices = ANY_DEVICES) -> PyTree:
        """The mean square of the logits of tokens, a loss to which every one counts, and its gradient."""
        model, batch = self.model(on), pairs.batch
        inputs, weights = batch if self.has_source else batch[1:], jnp.asarray(batch.target.segments != 0)

        def loss(params: PyTree) -> Array:
            logits = call(model, params, "__call__", *inputs, train=False)
            return jnp.sum(jnp.where(weights[..., None], jnp.square(logits), 0.0)) / jnp.sum(weights)

        return jax.jit(jax.value_and_grad(loss))(self.params)

    def start(self, source: AnyArray, beams: int, length: int) -> DecodeCache:
        """The cache before the first token; a language model has read nothing."""
        model = self.model()
        if not self.has_source:
            empty = jnp.zeros((len(source), 0), jnp.int32)
            cache: DecodeCache = call(model, self.params, "init_cache", empty, beam_width=beams, max_length=length)
            return cache

        def read(params: PyTree, tokens: Tokens) -> DecodeCache:
            memory = call(model, params, "encode", tokens, train=False)
            cache: DecodeCache = call(model, params, "init_cache", memory, beam_width=beams, max_length=length)
            return cache

        return jax.jit(read)(self.params, Tokens.from_ids(np.asarray(source)))

    def step(self, token_ids: Array, cache: DecodeCache) -> tuple[Array, DecodeCache]:
        """One step of decoding."""
        result: tuple[Array, DecodeCache] = call(self.model(), self.params, "decode_step", token_ids, cache)
        return result

    def update(self, mesh_config: MeshConfig | None = None, loss: LossFunction | None = None) -> Update:
        """The update of the settings, on one device or on a mesh; ``loss``: another than the task's."""
        config = MeshConfig(data=1) if mesh_config is None else mesh_config
        mesh = make_mesh(config, jax.devices()[: math.prod(config.sizes.values())])
        objective = objective_of(self.config, mesh)
        rule = task_class(self.config.task).update_rule(objective)
        return Update(self.config, loss or objective.loss, objective.init_params, mesh, rule)

    def loss_sums(self, params: PyTree, rows: PyTree) -> LossSums:
        """The training loss on one device."""
        objective = objective_of(self.config, single_mesh())
        sums: LossSums = objective.loss(params, rows, jax.random.key(0), hyperparameters_of(self.config))
        return sums

    def rows(self, pairs: Sentences) -> PyTree:
        """The batch of a training step."""
        return pairs.batch if self.has_source else pairs.batch.target


def single_mesh() -> jax.sharding.Mesh:
    """The mesh of the first device."""
    return make_mesh(MeshConfig(data=1), jax.local_devices()[:1])


def updated(update: Update, rows: PyTree, config: ExperimentConfig, count: int, state: PyTree = None) -> PyTree:
    """The state after ``count`` more updates with the same rows."""
    state = update.initial_state(0) if state is None else state
    hyperparameters = put_hyperparameters(hyperparameters_of(config), update.mesh)
    for _ in range(count):
        state, _ = update.jitted(state, put_rows(rows, update.mesh), hyperparameters)
    return state
