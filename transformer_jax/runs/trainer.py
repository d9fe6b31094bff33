"""The trainer: mesh, run directory, tokenizers, task, batches, state, updates, outcome."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.save_failure import require_free_space
from transformer_jax.config import ExperimentConfig
from transformer_jax.runs import starting
from transformer_jax.runs.compilation import CompilationAhead
from transformer_jax.runs.goodput import Clock, Goodput
from transformer_jax.runs.hooks import Hooks, dry_run, make_up_validation, watchdog
from transformer_jax.runs.initial_state import find_parameters, restored_position
from transformer_jax.runs.learning_signs import LearningSigns
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runs.progress import LOGGER, ProgressBar
from transformer_jax.runs.run import Hook, Outcome, RunParts, outcome_of_divergence
from transformer_jax.runs.trackers import Trackers
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.runtime.preemption import interruption
from transformer_jax.tasks.new_tokenizers import tokenizers_for_training
from transformer_jax.tasks.task import task_class
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.update import Update


def run_training(
    config: ExperimentConfig,
    workdir: str | Path,
    callbacks: Sequence[Hook] = (),
    *,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Train a new run in ``workdir``, or resume the one there.

    The run ends after its updates, at a signal, or when a hook calls ``position.stop()``.
    ``callbacks``: hooks of the caller; ``training.budget_seconds`` needs one that watches it.
    ``is_distributed``: this is one of several processes that train one model. ``origin``: where the
    settings come from, for ``run.json``.

    Raises:
        ConfigError, DataError: Mistakes that the user can correct, nearly all reported before the
            corpus is tokenized.
        TrainingDiverged: Loss or gradient were not finite.
    """
    clock = Clock()
    task_type = task_class(config.task)  # Translation: tasks/translation/translation_task.py.
    starting.start_process(config, task_type, is_distributed=is_distributed)
    mesh = make_mesh(config.mesh)
    with ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(starting.directory_of_process(workdir))
        config = starting.resolved_config(config, task_type, directory, mesh)
        enter(starting.locked_run(directory))

        task = task_type(config, tokenizers_for_training(config, directory, task_type), mesh)
        starting.require_objective(task)
        objective = task.objective
        update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
        starting.require_state_fits(update)
        checkpoints = Checkpoints(
            directory.checkpoints,
            keep_last=config.training.keep_last,
            keep_best=config.training.keep_best,
            selection=config.selection,
            lock=directory.lock,
        )
        enter(closing(checkpoints))
        position, logged, notes = restored_position(checkpoints, update, task, directory)
        is_new, first_update = position.state is None, position.number
        source = find_parameters(config.init, update.state_shapes.params, task.tokenizers) if is_new else None
        if source:
            notes.append(source.report())
            origin = {"initial_parameters": source.to_json(), **origin}
        notes += update.notes_on_frozen()
        if not position.ends:
            kept = config.training.keep_last + config.training.keep_best
            notes += require_free_space(directory.path, update.saved_shapes, kept)
        data = task.training_data()
        starting.require_same_batches(task, data, first_update)
        LOGGER.info("%s", data.report.text)

        # Data, model and checkpoint fit together: from here on files are written.
        with first_goes_first("files of the run"):
            if is_new:
                directory.remove_earlier_scores()
            goodput = Goodput(directory.goodput, first_update, clock)
            starting.write_run_files(directory, update, task, data, origin)
            # A validation that is made up for logs its record again.
            num_records = logged.num_records if position.is_validation_due else None
            log = enter(closing(MetricsLog(directory.metrics, first_update, num_records, directory.require_lock)))
            trackers = enter(Trackers(directory.local, config, first_update))
        run = RunParts(
            config=config,
            directory=directory,
            task=task,
            update=update,
            data=data,
            checkpoints=checkpoints,
            clock=clock,
            goodput=goodput,
            log=log,
            trackers=trackers,
            signs=LearningSigns(config, data.report.content, log.earlier),
            interruption=enter(interruption()),
            first_update=first_update,
        )
        enter(outcome_of_divergence(run, position))
        for note in [*notes, *log.contents.changes_since(logged)]:
            LOGGER.info("%s", note)
        if first_update:
            LOGGER.info("resumed at update %d", first_update)
        if position.ends:
            return run.finish(position)

        # The first program is traced here; a thread compiles it while the dry run evaluates.
        ahead = enter(closing(CompilationAhead(update, data.batch_shapes(first_update), clock)))
        callbacks = [enter(ProgressBar()), *callbacks]
        hooks = Hooks(run, position, callbacks)
        if is_new:
            position.state = update.initial_state(config.seed, source.put_into if source else None)
            dry_run(run, position, "restored" if config.init.run else "untrained")
        elif position.is_validation_due:
            make_up_validation(run, position)
        hooks.begin()
        if position.ends:
            return run.finish(position)

        clock.turn_to("step")
        enter(watchdog(clock, config.training.hang_factor, directory.hang))
        hyperparameters = put_hyperparameters(run.hyperparameters(position.num_updates), mesh)
        unread = None  # Metrics of the previous update, still on the devices.
        rows = data.batches(first_update)
        for number in count(first_update + 1):
            with clock.spend("data_wait"):
                batch = put_batch(next(rows), mesh)
            ahead.wait_for(batch)
            position.state, metrics = update.jitted(position.state, batch, hyperparameters)
            # While the devices run this update, the metrics of the previous one are read.
            if unread is not None:
                hooks.call(number - 1, unread)
            unread = metrics
            if run.interruption.stops_after(number):
                position.stop("interrupted")
            if hooks.need_state(number):
                hooks.call(number, metrics, has_state=True)
                unread = None
                # A hook may have changed the length of the run.
                hyperparameters = put_hyperparameters(run.hyperparameters(position.num_updates), mesh)
            # A hook that stopped the run at an update without a checkpoint: the next one is saved.
            if position.ends and position.results.is_saved:
                break
            ahead.compile_next()
        return run.finish(position)
