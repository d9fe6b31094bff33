"""The model on devices that a run trains and evaluates, and its loss."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jax.sharding import Mesh

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of, parts_with
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.precision import Precision
from transformer_jax.runtime.hardware import device_of
from transformer_jax.training.state import param_shapes

if TYPE_CHECKING:
    from transformer_jax.layers.embedding import LogitFactors
    from transformer_jax.models.interface import Module
    from transformer_jax.training.losses import LossFunction, LossSums
    from transformer_jax.training.step import UpdateRule


class Objective:
    """A model on the devices of ``mesh``, and the ``loss`` of its training.

    ``build(devices, rates, parts)`` makes the model, on any devices by default, and
    ``init(model, key)`` its parameters. Losses are imported when they are used: decoding does
    without them, and without models if its programs are kept. Raises ConfigError if
    ``model.attention_backend`` cannot run on the devices.
    """

    update_rule: "UpdateRule | None" = None

    def __init__(
        self, config: ExperimentConfig, mesh: Mesh, build: Callable[..., "Module"], init: Callable[..., PyTree]
    ) -> None:
        from transformer_jax.models.devices import devices_of, policies_on

        self.config, self.mesh = config, mesh
        self._build, self._init = build, init
        self._devices = devices_of(config.model, mesh, one_sentence=config.batching.kind != "packed")
        self._policies = policies_on(mesh)
        self.platform: str = device_of(mesh).platform

    def init_params(self, key: Array) -> PyTree:
        """Return the initial parameters of the model, and of loss terms that have some."""
        from transformer_jax.models.initialization import initialized

        # On any devices: the batch that initializes is one row, which cannot be split.
        model = self._build(parts=self.config.parts)

        def init_all(key: Array) -> PyTree:
            params = self._init(model, key)
            if self.config.training.loss_term_names:
                from transformer_jax.training.loss_terms import LossTerms

                params = params | LossTerms(self.config, hyperparameters_of(self.config)).init_params(model, key)
            return params

        return initialized(init_all, self.config.model, self.config.parts, key)

    def training_model(self, hyperparameters: Hyperparameters) -> "Module":
        """Build the model, with hyperparameters that may be traced."""
        return self._build(self._devices, hyperparameters.rates, parts_with(self.config, hyperparameters))

    @property
    def training_precision(self) -> Precision:
        return self._policies[self.config.model.compute_dtype]

    @cached_property
    def loss(self) -> "LossFunction":
        from transformer_jax.tasks.training_loss import training_loss

        return partial(training_loss, self)

    @cached_property
    def activations(self) -> Callable[..., PyTree]:
        from transformer_jax.tasks.training_loss import activations_of

        return partial(activations_of, self)

    def unsmoothed_cross_entropy(
        self, factors: "LogitFactors", ids: AnyArray, is_scored: AnyArray, precision: Precision
    ) -> "LossSums":
        """Return the cross entropy of the scored tokens [B, T], for validation."""
        from transformer_jax.tasks.training_loss import cross_entropy_of

        return cross_entropy_of(self, factors, ids, is_scored, precision)


class OpenTask:
    """Settings, tokenizers, devices, and model with loss, of every trained run."""

    new_objective: Callable[..., Any]

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        """Open a task. The settings choose its ``objective`` by default."""
        self.config, self.tokenizers, self.mesh = config, tokenizers, mesh
        self._sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        if objective is not None:
            self.objective = objective

    @cached_property
    def objective(self) -> Any:
        return self.new_objective(self.config, self._sizes, self.mesh)

    def param_shapes(self) -> PyTree:
        return param_shapes(self.objective.init_params)
