"""The update of a run: schedule, optimizer and step, and the state they work on, all from its settings."""

from collections.abc import Callable
from functools import cached_property

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters, hyperparameters_of
from transformer_jax.training.freezing import frozen, without_gradient
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.schedules import Schedule, make_schedule
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import (
    LossFunction,
    UpdateRule,
    compile_train_step,
    compiler_options,
    make_initial_state,
    make_train_step,
    state_shapes,
)


class Update:
    """One optimizer update on the devices of ``mesh``, for every run with the structure of ``config``.

    The hyperparameters of a run are an argument of its step, its seed one of its first state. With a ``rule`` the task
    updates its parameters itself; without, they get a dense gradient of ``loss`` and the optimizer of ``config``.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        loss: LossFunction,
        init_params: Callable[[Array], PyTree],
        mesh: Mesh,
        rule: UpdateRule | None = None,
    ) -> None:
        """Raises ConfigError where the compiler does not take ``training.xla_options``."""
        self.mesh = mesh
        self._config = config
        if config.optimizer.freeze:
            loss = without_gradient(loss, config.optimizer.freeze)
        hyperparameters = hyperparameters_of(config)
        rule = rule or UpdateRule(
            self._optimizer(hyperparameters, 0).init,
            make_train_step(loss, self._optimizer, config.batching.accumulation_steps, mesh),
        )
        self.step = rule.step
        self.hyperparameter_shapes: Hyperparameters = jax.tree.map(
            lambda _: jax.ShapeDtypeStruct((), jnp.float32), hyperparameters
        )
        self._parts_of_state = init_params, rule, mesh
        self.state_shapes: TrainState = state_shapes(*self._parts_of_state)
        self.options = compiler_options(config.training, mesh)
        self.jitted = compile_train_step(self.step, self.state_shapes, mesh, self.options)

    @cached_property
    def initial_state(self) -> Callable[[int], TrainState]:
        """From the seed of a run to its state before the first update."""
        return make_initial_state(*self._parts_of_state)

    def schedule(self, hyperparameters: Hyperparameters) -> Schedule:
        """The learning rate of a run."""
        return make_schedule(self._config.optimizer.schedule, hyperparameters, self._config.model.d_model)

    def lower(self, batch: PyTree) -> jax.stages.Lowered:
        """The step for batches like this one, ready to be compiled, which JAX does once; shapes will do."""
        return self.jitted.lower(self.state_shapes, batch, self.hyperparameter_shapes)

    def _optimizer(self, hyperparameters: Hyperparameters, step: Array | int) -> optax.GradientTransformation:
        optimizer = make_optimizer(self._config.optimizer.name, hyperparameters, self.schedule(hyperparameters), step)
        pattern = self._config.optimizer.freeze
        return frozen(optimizer, pattern) if pattern else optimizer
