"""Properties of a task: settings, batches, loss, evaluation, and a run that is opened again.

They take a ``TaskTrial`` and an unused length, return a few words, and raise ``Broken``.
"""

import io
import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import (
    ConfigError,
    DataError,
    ExperimentConfig,
    from_dict,
    hyperparameters_of,
    load_run_config,
    scheduled_hyperparameters_of,
    to_dict,
)
from transformer_jax.config.checks import declared
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, kinds_of
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.runs.run import Position, RunParts
from transformer_jax.runs.trainer import run_training
from transformer_jax.tasks.task import Task, task_class
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.conform.comparison import Broken, require_near, require_same_bits
from transformer_jax.tools.conform.ideas import with_values
from transformer_jax.tools.conform.trials import single_mesh
from transformer_jax.training.sharding import put_hyperparameters, put_rows
from transformer_jax.training.update import Update

UPDATES = 4
SIZES: dict[str, dict[str, Any]] = {
    "data": {"generated_pairs": 200, "generated_sentences": 200, "max_source_tokens": 63, "max_target_tokens": 63},
    "batching": {"tokens_per_update": 512, "context_length": 32, "blocks_per_update": 2, "rows": 8, "row_length": 16},
    "model": {
        **{"d_model": 16, "d_ff": 32, "num_heads": 2, "d_embedding": 16, "d_hidden": 16, "d_attention": 16},
        **{"num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0, "embedding_dropout": 0.0},
    },
    "decoding": {"beam_width": 1, "max_extra_tokens": 4, "max_new_tokens": 8},
}
"""Settings of a small run, for tasks that have them."""
TRAINING: dict[str, Any] = {
    "tokenizer": {"kind": "word", "vocabulary_size": 64},
    "optimizer": {"schedule": "constant", "learning_rate": 0.01, "warmup_updates": 1},
    "training": {"num_updates": UPDATES, "evaluate_every": UPDATES, "validation_sentences": 8},
}


def task_config(values: Mapping[str, Any]) -> ExperimentConfig:
    """Return the settings of a small run of a task with ``values``, nested by block."""
    sizes = {}
    for block in BLOCKS_OF_TASKS:
        kinds = kinds_of(values["task"], block)
        fields = declared(kinds.get(values.get(block, {}).get("kind"), next(iter(kinds.values()))))
        sizes[block] = {name: value for name, value in SIZES.get(block, {}).items() if name in fields}
    return from_dict(with_values({**TRAINING, **sizes}, values))


class TaskTrial:
    """A task of ``config`` on one device, with an update."""

    def __init__(self, config: ExperimentConfig) -> None:
        self.config, self.kind = config, task_class(config.task)

    def new_task(self) -> Task:
        return self.kind(self.config, self.kind.new_tokenizers(self.config), single_mesh())

    @cached_property
    def task(self) -> Task:
        return self.new_task()

    @cached_property
    def batch(self) -> PyTree:
        """The batch of the first update."""
        return next(self.task.training_data().batches(0))

    @cached_property
    def update(self) -> Update:
        objective = self.task.objective
        return Update(self.config, objective.loss, objective.init_params, single_mesh(), objective.update_rule)


def wrong_settings_are_refused(trial: TaskTrial, length: int) -> str:
    """Check that numbers outside of every range, and a split that the data lacks, are errors."""
    values, accepted = to_dict(trial.config), []
    for block in BLOCKS_OF_TASKS:
        for name in (name for name, value in values[block].items() if type(value) in (int, float)):
            with suppress(ConfigError):
                from_dict({**values, block: {**values[block], name: -(10**9)}})
                accepted.append(f"{block}.{name}")
    if accepted:
        raise Broken(f"{', '.join(accepted)} may be -1,000,000,000")
    try:
        trial.kind.require_split(trial.config, "no_such_split")
    except (ConfigError, DataError):
        return "numbers and splits"
    raise Broken("require_split accepts the split no_such_split")


def batches_follow_the_update(trial: TaskTrial, length: int) -> str:
    """Check that the batch of an update does not depend on the batches read before it."""
    expected = list(itertools.islice(trial.task.training_data().batches(0), UPDATES))
    for task, origin in ((trial.task, "read again"), (trial.new_task(), "of a new process")):
        for first in (2, 0):
            batches = itertools.islice(task.training_data().batches(first), UPDATES - first)
            for number, pair in enumerate(zip(batches, expected[first:], strict=True), first + 1):
                try:
                    require_same_bits(*pair)
                except (Broken, ValueError) as error:
                    raise Broken(f"update {number}, {origin} from update {first + 1}: {error}") from error
    return "same bits"


def update_learns(trial: TaskTrial, length: int) -> str:
    """Check that the loss is finite, and falls in two updates with the same batch."""
    update, state, losses = trial.update, trial.update.initial_state(trial.config.seed), []
    rows = put_rows(trial.batch, update.mesh)
    hyperparameters = put_hyperparameters(scheduled_hyperparameters_of(trial.config), update.mesh)
    for _ in range(3):
        state, metrics = update.jitted(state, rows, hyperparameters)
        losses.append(float(metrics.sums.loss))
    if not losses[2] < losses[0] < math.inf:
        raise Broken(f"the loss goes from {losses[0]:.3f} to {losses[2]:.3f} in two updates")
    return f"loss {losses[0]:.1f} to {losses[2]:.1f}"


def loss_equals_eager(trial: TaskTrial, length: int) -> str:
    """Check that the loss without jit is the compiled one."""
    params = trial.update.initial_state(trial.config.seed).params
    arguments = params, trial.batch, jax.random.key(0), hyperparameters_of(trial.config)
    expected = jax.jit(trial.task.objective.loss)(*arguments).loss
    with jax.disable_jit():
        return require_near(trial.task.objective.loss(*arguments).loss, expected)


def a_run_is_opened_and_scores_the_same(trial: TaskTrial, length: int) -> str:
    """Check that a run has its metric and loss, and scores the same when opened."""
    scores: list[dict[str, float]] = []

    def evaluated(task: Task, params: PyTree) -> None:
        scores.append(dict(task.evaluate(params, trial.config.data.validation_split, limit=8).metrics))

    def at_end(run: RunParts, position: Position) -> None:
        if position.number == UPDATES:
            evaluated(run.task, run.update.evaluation_params(position.state))

    output = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(output), redirect_stderr(output):
        run_training(trial.config, folder, (at_end,))
        trained = open_trained(ChosenRun(folder, load_run_config(folder), str(UPDATES)))
        evaluated(trained.task, trained.params)
    names = trial.config.selection.name, "loss"
    for name in names:
        if not math.isfinite(scores[0].get(name, math.nan)):
            raise Broken(f"evaluation gives {', '.join(scores[0])}, and no finite {name}")
    in_run, opened = ([score[name] for name in names] for score in scores)
    require_near(opened, in_run)
    return ", ".join(f"{name} {scores[0][name]:.3g}" for name in names)


OF_TASKS: dict[str, Callable[[TaskTrial, int], str]] = {
    "wrong settings are refused": wrong_settings_are_refused,
    "batches follow the update": batches_follow_the_update,
    "learns a batch in two updates": update_learns,
    "jit equals eager": loss_equals_eager,
    "a run opens and scores the same": a_run_is_opened_and_scores_the_same,
}
