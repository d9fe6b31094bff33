"""The update of a run: schedule, optimizer and step, and the state they work on, all from its settings."""

from collections.abc import Callable
from functools import partial

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.training.freezing import without_gradient
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.schedules import make_schedule
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import LossFunction, compile_train_step, initial_state, make_train_step, state_shapes


class Update:
    """What one update of a run does, on the devices of ``mesh``."""

    def __init__(
        self, config: ExperimentConfig, loss: LossFunction, init_params: Callable[[Array], PyTree], mesh: Mesh
    ) -> None:
        self.mesh = mesh
        self.schedule = make_schedule(config.optimizer, config.model.d_model, config.training.num_updates)
        if config.optimizer.freeze:
            loss = without_gradient(loss, config.optimizer.freeze)
        optimizer = make_optimizer(config.optimizer, self.schedule)
        self.step = make_train_step(loss, optimizer, config.batching.accumulation_steps)
        self.state_shapes: TrainState = state_shapes(init_params, optimizer, config.seed, mesh)
        self._initial_state = partial(initial_state, init_params, optimizer, config.seed, mesh)

    def initial_state(self) -> TrainState:
        """The state before the first update."""
        return self._initial_state()

    def jitted(self) -> jax.stages.Wrapped:
        """The step, ready to be lowered for shapes of batches."""
        return compile_train_step(self.step, self.state_shapes, self.mesh)
