"""The update of a run (schedule, optimizer, step) and its first state, from its settings."""

from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    Hyperparameters,
    TrainingConfig,
    hyperparameters_of,
    parts_with,
    scheduled_hyperparameters_of,
)
from transformer_jax.registry.plugins import registered
from transformer_jax.runtime.hardware import device_of, is_nvidia_gpu
from transformer_jax.training.losses import LossFunction
from transformer_jax.training.optimizers import make_optimizer
from transformer_jax.training.parameters import frozen, trained_share, with_frozen, without_gradient
from transformer_jax.training.schedules import Schedule, make_schedule
from transformer_jax.training.sharding import batch_sharding, replicated, sharded_shapes
from transformer_jax.training.state import TrainState, create_state
from transformer_jax.training.statistics import Watch
from transformer_jax.training.step import UpdateRule, make_train_step

ON_NVIDIA: dict[str, str | bool] = {"xla_gpu_dot_merger_threshold_mb": "8"}
"""Options for NVIDIA: larger products of the same array stay apart, since attention reads queries,
keys and values as separate arrays, which would be copied out of a common one."""
DETERMINISTIC: dict[str, str | bool] = {"xla_gpu_exclude_nondeterministic_ops": True}
"""Options of XLA that make a GPU add up in a fixed order; they change nothing elsewhere."""
RUN_ONCE = {"xla_backend_optimization_level": "1"}
"""Options for CPUs and programs that run once: the initial parameters of Transformer base compile
in a third of the time, and have the same values."""


class Update:
    """One optimizer update on the devices of ``mesh``, for runs with the structure of ``config``.

    ``jitted``: the step, which keeps the shardings of the state, whose memory it reuses, and splits
    the rows of the batch. ``not_trained``: regular expression of the parameters that the optimizer
    does not change, empty if there are none. The hyperparameters of a run are an argument of its
    step, its seed an argument of its first state. A task may bring another ``rule``. By default
    parameters are updated with the gradient of ``loss`` and the optimizer of ``config``.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        loss: LossFunction,
        init_params: Callable[[Array], PyTree],
        mesh: Mesh,
        rule: UpdateRule | None = None,
    ) -> None:
        """Raise ConfigError when the compiler does not take ``training.xla_options``."""
        self.mesh, self._config = mesh, config
        hyperparameters = hyperparameters_of(config)
        after = [registered("after_update")[name] for name in config.optimizer.after_update_names]
        self.not_trained = "|".join(filter(None, (config.optimizer.freeze, *(part.not_trained for part in after))))
        if self.not_trained:
            loss = without_gradient(loss, self.not_trained)
        self.loss = loss
        self._project = Watch(config, hyperparameters).initial_params
        if rule is None:
            watch = partial(Watch, config) if config.training.watch or after else None
            step = make_train_step(loss, self._optimizer, config.batching.accumulation_steps, mesh, watch)
            rule = UpdateRule(self._optimizer(hyperparameters, 0).init, step)
        self.step = rule.step
        self.hyperparameter_shapes: Hyperparameters = jax.tree.map(
            lambda _: jax.ShapeDtypeStruct((), jnp.float32), scheduled_hyperparameters_of(config)
        )
        self._init_optimizer = rule.init
        self._create = partial(create_state, lambda key: self._project(init_params(key)), rule.init)
        seed = jax.ShapeDtypeStruct((), jnp.uint32)
        self.state_shapes: TrainState = sharded_shapes(jax.eval_shape(self._create, seed), mesh)
        shardings = self._shardings(self.state_shapes)
        self.jitted = jax.jit(
            self.step,
            in_shardings=(shardings, batch_sharding(mesh), replicated(mesh)),
            out_shardings=(shardings, replicated(mesh)),
            donate_argnums=0,
            compiler_options=compiler_options(config.training, mesh),
        )

    def notes_on_frozen(self) -> list[str]:
        """Return a line on the parameters that train, none if all do."""
        pattern = self._config.optimizer.freeze
        return [trained_share(self.state_shapes.params, pattern)] if pattern else []

    def initial_state(self, seed: int, change: Callable[[PyTree], PyTree] | None = None) -> TrainState:
        """Return the first state of a run, every leaf created with its sharding.

        ``change`` gets the random parameters and returns others, which ``optimizer.after_update``
        projects too.
        """
        state = self._create_sharded(np.uint32(seed))
        if change is None:
            return state
        params, state = change(state.params), state._replace(params=None, optimizer_state=None)
        if self._config.optimizer.after_update_names:
            params = jax.jit(self._project, out_shardings=self._shardings(self.state_shapes.params))(params)
        # Averages of parameters in the optimizer state begin at these.
        shardings = self._shardings(self.state_shapes.optimizer_state)
        optimizer_state = jax.jit(self._init_optimizer, out_shardings=shardings)(params)
        return state._replace(params=params, optimizer_state=optimizer_state)

    @cached_property
    def _create_sharded(self) -> Callable[[np.uint32], TrainState]:
        shardings, is_cpu = self._shardings(self.state_shapes), device_of(self.mesh).platform == "cpu"
        # Without optimizations XLA compiles still faster.
        options = RUN_ONCE if is_cpu and not jax.config.values["jax_disable_most_optimizations"] else None
        return jax.jit(
            self._create, in_shardings=replicated(self.mesh), out_shardings=shardings, compiler_options=options
        )

    def schedule(self, hyperparameters: Hyperparameters) -> Schedule:
        """Return the learning rate of a run."""
        config = self._config
        parts = parts_with(config, hyperparameters)
        return make_schedule(config.optimizer.schedule, hyperparameters, config.model.d_model, parts)

    @property
    def saved_shapes(self) -> PyTree:
        """The arrays of a checkpoint: the state, and an average of its parameters."""
        has_average = self._config.optimizer.averaging != "none"
        return self.state_shapes, self.state_shapes.params if has_average else ()

    def evaluation_params(self, state: TrainState) -> PyTree:
        """Return the parameters to evaluate and to save: the trained ones or their average."""
        return state.params if self._config.optimizer.averaging == "none" else self._average(state)

    @cached_property
    def _average(self) -> Callable[[TrainState], PyTree]:
        part, pattern = registered("averaging")[self._config.optimizer.averaging], self.not_trained

        def average(state: TrainState) -> PyTree:
            average, of_state = part.evaluation_params, (state.optimizer_state, state.params)
            params = with_frozen(average, pattern, *of_state) if pattern else average(*of_state)
            return self._project(params)

        return jax.jit(average, out_shardings=self._shardings(self.state_shapes.params))

    @staticmethod
    def _shardings(shapes: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf.sharding, shapes)

    def lower(self, batch: PyTree) -> jax.stages.Lowered:
        """Lower the step for batches of these shapes. ``jitted`` reuses the compiled program."""

        def sharded(shapes: PyTree, sharding: NamedSharding) -> PyTree:
            # Without shardings JAX would trace and compile the step again for the arrays.
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)

        hyperparameters = sharded(self.hyperparameter_shapes, replicated(self.mesh))
        return self.jitted.lower(self.state_shapes, sharded(batch, batch_sharding(self.mesh)), hyperparameters)

    def _optimizer(self, hyperparameters: Hyperparameters, step: Array | int) -> optax.GradientTransformation:
        settings, parts = self._config.optimizer, parts_with(self._config, hyperparameters)
        schedule = self.schedule(hyperparameters)
        optimizer = make_optimizer(settings.name, hyperparameters, schedule, step, parts, settings.averaging)
        return frozen(optimizer, self.not_trained) if self.not_trained else optimizer


def compiler_options(training: TrainingConfig, mesh: Mesh) -> dict[str, str | bool] | None:
    """Return options of XLA for the training step. Raises ConfigError if ``mesh`` has none such."""
    requested = training.compiler_options
    if requested:
        try:
            jax.jit(lambda: jnp.zeros(()), out_shardings=replicated(mesh), compiler_options=requested).lower().compile()
        except jax.errors.JaxRuntimeError as error:
            problem = str(error).partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
            problem += f" (XLA for {mesh.devices.flat[0].platform})"
            remedy = "give options that it has, or leave this empty"
            raise ConfigError("training.xla_options", problem, remedy) from None
    nvidia = ON_NVIDIA if is_nvidia_gpu(device_of(mesh)) else {}
    return nvidia | (DETERMINISTIC if training.deterministic else {}) | requested or None
