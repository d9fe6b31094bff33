"""Trains a run: mesh -> run directory -> tokenizers -> task -> batches -> state -> updates and their hooks -> outcome."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from transformer_jax.checkpoints.manager import Checkpoints, Progress
from transformer_jax.checkpoints.save_failure import require_free_space
from transformer_jax.config import ConfigError, ExperimentConfig, difference, load_run_config, migration, to_json
from transformer_jax.config.conversion import from_json, listed
from transformer_jax.config.data import GENERATED_SOURCES
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.data.tensorflow_runtime import require_tensorflow
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.runs.compilation import CompilationAhead
from transformer_jax.runs.goodput import Clock, Goodput
from transformer_jax.runs.hooks import (
    Profile,
    ProfiledSteps,
    call_hooks,
    dry_run,
    hooks_of,
    make_up_validation,
    watchdog,
)
from transformer_jax.runs.initial_state import InitialState
from transformer_jax.runs.learning_signs import LearningSigns
from transformer_jax.runs.metrics_log import LogContents, MetricsLog
from transformer_jax.runs.progress import LOGGER, ProgressBar
from transformer_jax.runs.run import Counters, Hook, Outcome, TrainingDiverged, TrainingRun
from transformer_jax.runs.run_directory import RunDirectory, write_json
from transformer_jax.runs.trackers import Trackers
from transformer_jax.runtime.distributed import (
    first_goes_first,
    from_first,
    is_first,
    join_processes,
    require_same,
    require_shared_folder,
)
from transformer_jax.runtime.hardware import DeviceSettings, require_memory, resolve_for_device, settings_on, start_jax
from transformer_jax.runtime.open_copies import address_of_checkpoints
from transformer_jax.runtime.preemption import interruption
from transformer_jax.tasks.new_tokenizers import tokenizers_for_training
from transformer_jax.tasks.task import Task, TrainingData, objective_of, task_class
from transformer_jax.training.parameters import frozen_mask
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState, count_parameters, param_shapes, without_loss_terms
from transformer_jax.training.update import Update, compiler_options


def run_training(
    config: ExperimentConfig,
    workdir: str | Path,
    callbacks: Sequence[Hook] = (),
    *,
    profiled: ProfiledSteps | None = None,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Trains a new run in ``workdir``, or resumes the one there, until its end, a signal, or ``run.stop()`` by a hook.

    ``callbacks``: hooks of the caller. ``is_distributed``: this is one of several processes that train one model. ``origin``:
    where the settings come from, for ``run.json``.

    Raises:
        ConfigError, DataError: mistakes that the user can correct, nearly all found before the corpus is tokenized.
        TrainingDiverged: loss or gradient were not finite.
    """
    clock = Clock()
    if task_class(config.task).needs_tensorflow:
        require_tensorflow()
    if is_distributed:
        join_processes()
        require_same(repr(config), "--distributed: the processes have different settings; use the same command")
    start_jax(config.data.cache_directory)
    mesh = make_mesh(config.mesh)
    with ExitStack() as stack:
        enter = stack.enter_context
        directory = RunDirectory(workdir, scratch=None if is_first() else enter(TemporaryDirectory()))
        config = resolved_config(config, directory, mesh)
        enter(_locked(directory))

        task_type = task_class(config.task)  # Translation: tasks/translation/task.py.
        task = task_type(config, tokenizers_for_training(config, directory, task_type), mesh)
        objective = task.objective
        update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
        _require_state_fits(update)
        last, best = config.training.keep_last, config.training.keep_best
        checkpoints = Checkpoints(directory.checkpoints, keep_last=last, keep_best=best, selection=config.selection)
        enter(closing(checkpoints))
        saved = _restore(checkpoints, update, task, directory)
        initial = InitialState(config, update, task.tokenizers, is_resumed=saved.state is not None)
        if not saved.is_over(config) and not address_of_checkpoints(directory.checkpoints):
            saved.notes.extend(require_free_space(directory.path, update.saved_shapes, last + best))
        data = task.training_data()
        _require_same_batches(task, data, saved.number)
        LOGGER.info("%s", data.report.text)

        # Data, model and checkpoint fit together: from here on files are written.
        with first_goes_first("files of the run"):
            if saved.state is None:
                directory.remove_earlier_scores()
            goodput = Goodput(directory.goodput, saved.number, clock)
            _write_run_files(directory, config, update, task, data, initial.origin() | dict(origin))
            log = enter(closing(MetricsLog(directory.metrics, saved.number, saved.num_records)))
            trackers = enter(Trackers(directory.metrics.parent, config, saved.number))
        signs = LearningSigns(config, data.report.content.get("unigram_entropy"), log.earlier)
        interrupted = interruption()
        enter(interrupted)
        run = TrainingRun(
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
            signs=signs,
            interruption=interrupted,
            first_update=saved.number,
            counters=saved.counters,
            is_validation_due=saved.is_validation_due,
            state=saved.state,
            number=saved.number,
        )
        enter(_outcome_of_divergence(run))
        for note in [
            *saved.notes,
            *_notes_on_budget(origin),
            *log.contents.changes_since(saved.logged),
            *initial.notes(),
        ]:
            LOGGER.info("%s", note)
        if saved.number:
            LOGGER.info("resumed at update %d", saved.number)
        if config.training.budget_seconds and not run.has_budget:
            LOGGER.info("training.budget_seconds: several processes keep %d updates: clocks differ", run.num_updates)
        if run.reason_to_end:
            return _finish(run)

        # A thread compiles the first program while the dry run evaluates; the loop does not depend on it.
        ahead = enter(closing(CompilationAhead(update, data.batch_shapes(run.number))))
        profile = enter(closing(Profile(profiled, directory.profile)))
        observers: list[Hook] = [enter(ProgressBar()), profile, *callbacks]
        hooks = hooks_of(run, observers)
        if run.state is None:
            run.state = initial.state()
            dry_run(run)
        elif run.is_validation_due:
            make_up_validation(run)
        for hook in observers:
            hook(run)
        if run.reason_to_end:
            return _finish(run)

        clock.turn_to("step")
        enter(watchdog(clock, config.training.hang_factor, directory.hang))
        hyperparameters = put_hyperparameters(run.hyperparameters, mesh)
        unread = None  # Metrics of the previous update, still on the devices.
        rows = clock.waiting_for(data.batches(run.number))
        batches = ahead.before((put_batch(part, mesh) for part in rows), clock)
        for number, batch in enumerate(batches, run.number + 1):
            run.state, metrics = update.jitted(run.state, batch, hyperparameters)
            # While the devices run this update, the metrics of the previous one are read.
            call_hooks(run, hooks, number - 1, unread)
            unread = metrics
            run.is_interrupted = interrupted.stops_after(number)
            run.note_time()
            if run.is_estimated_after(number) or profile.is_due(number):
                call_hooks(run, hooks, number, unread)
                unread = None
                # A budget of time may have shortened the run.
                hyperparameters = put_hyperparameters(run.hyperparameters, mesh)
            # A hook that stopped the run at an update without a checkpoint: the next one is saved.
            if run.reason_to_end and (run.is_saved or not run.is_stopped):
                break
        return _finish(run)


def resolved_config(config: ExperimentConfig, directory: RunDirectory, mesh: Mesh) -> ExperimentConfig:
    """The settings that the run saves, with absolute paths, and with ``auto`` resolved for the devices.

    Raises ConfigError when no new run should begin with the settings, the model is larger than the memory, rows do not divide
    over the devices, nothing or everything is frozen, or the compiler does not take ``training.xla_options``, and DataError
    when there is no validation split.
    """
    compiler_options(config.training, mesh)
    if not directory.has_checkpoints():
        config.check_new_run()
    # The embeddings alone, before corpus and tokenizers are read; the whole state follows in _require_state_fits.
    embeddings = 4 * config.model.d_model * config.tokenizer.vocabulary_size
    require_memory(embeddings * len(mesh.local_devices) // mesh.size, mesh.local_devices)
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    if config.training.evaluate_every and (
        config.data.has_pairs or config.data.directory or getattr(config.data, "validation", "")
    ):
        task_class(config.task).require_split(config, "validation")
    if config.data.directory and config.data.source in GENERATED_SOURCES:
        LOGGER.info("data.directory: not read, since data.source=%s is generated", config.data.source)
    config = replace(config, init=config.init.absolute(), data=config.data.absolute())
    config = task_class(config.task).begin(config, directory)
    config = resolve_for_device(config, partial(_device_settings, directory, mesh))
    if not directory.has_checkpoints():
        config.check_new_run()
    if config.optimizer.freeze:
        frozen_mask(param_shapes(objective_of(config, mesh).init_params), config.optimizer.freeze)
    return config


def _device_settings(directory: RunDirectory, mesh: Mesh) -> DeviceSettings:
    """The saved settings of a run with checkpoints; for a new run the settings for the device of process 0."""

    def find() -> DeviceSettings:
        if not directory.has_checkpoints():
            return settings_on(mesh.devices.flat[0])
        saved = load_run_config(directory.path)
        return DeviceSettings(saved.model.compute_dtype, getattr(saved.batching, "width_multiple", 0))

    return DeviceSettings(*from_first(find, "settings of the devices"))


@contextmanager
def _locked(directory: RunDirectory) -> Iterator[None]:
    """Locks the folder of a run; raises ConfigError unless it can be written and all processes see it."""
    with ExitStack() as lock:
        with first_goes_first("lock of the run"):
            lock.enter_context(directory.locked())
        if not address_of_checkpoints(directory.checkpoints):
            require_shared_folder(directory.path)
        yield


def _require_state_fits(update: Update) -> None:
    devices = update.mesh.local_devices
    leaves = jax.tree.leaves(update.state_shapes)
    shards = (math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    require_memory(len(devices) * sum(shards), devices)


class _Saved(NamedTuple):
    """The checkpoint after ``number`` updates; ``state`` None: a new run. ``notes``: on newer checkpoints that are damaged."""

    number: int
    state: TrainState | None
    counters: Counters
    logged: LogContents
    is_validation_due: bool
    notes: list[str]

    @property
    def num_records(self) -> int | None:
        """Log lines to keep where the last validation is repeated; None: all until update ``number``."""
        return self.logged.num_records if self.is_validation_due else None

    def is_over(self, config: ExperimentConfig) -> bool:
        """Whether no update and no validation is left, so that nothing more will be saved."""
        patience = config.training.patience
        is_out_of_patience = patience > 0 and self.counters.evaluations_without_gain >= patience
        is_finished = self.number >= (self.counters.num_updates or config.training.num_updates)
        return not self.is_validation_due and (is_finished or is_out_of_patience)


def _restore(checkpoints: Checkpoints, update: Update, task: Task, directory: RunDirectory) -> _Saved:
    """The newest checkpoint that all processes can read, if there are any.

    Raises ConfigError when the data changed since it was written; CheckpointError when none can be read.
    """
    if not checkpoints.steps():
        return _Saved(0, None, Counters(), LogContents(), False, [])
    state, progress, notes = checkpoints.restore_newest(update.state_shapes)
    for name, digest in task.identity.items():
        saved = progress["data"][name]
        if saved != digest and saved != migration.earlier_digest(task.config, task.open_source):
            before = load_run_config(directory.path)
            changes = difference(before, task.config)
            if bool(before.data.store) != bool(task.config.data.store):
                begun = "with" if before.data.store else "without"
                raise ConfigError(
                    f"data.store: the run {directory.path} was started {begun} data.store; resume it the same way"
                )
            raise ConfigError(
                f"--workdir: {directory.path}: the {name} changed since its checkpoints were written; use another folder, or "
                f"the data they were trained on{listed(each for each in changes if each[0].startswith('data.'))}"
            )
    counters = Counters(**migration.counters(progress["counters"]))
    if counters.num_updates:
        then, now = from_json(progress["config"]).training, task.config.training
        if any(
            getattr(then, name) != getattr(now, name) for name in ("num_updates", "budget_seconds", "budget_policy")
        ):
            counters.num_updates = 0  # Another budget shortened the run.
    return _Saved(int(state.step), state, counters, _log_of(progress), progress.get("is_validation_due", False), notes)


def _log_of(progress: Progress) -> LogContents:
    return LogContents(progress.get("num_records", 0), progress.get("log_digest", ""))


def _require_same_batches(task: Task, data: TrainingData, update: int) -> None:
    same = dict(task.identity), [jax.tree.leaves(shape) for shape in data.batch_shapes(update)]
    problem = "data: the processes read different data; give all of them the same data.directory content"
    require_same(repr(same), problem)


def _write_run_files(
    directory: RunDirectory,
    config: ExperimentConfig,
    update: Update,
    task: Task,
    data: TrainingData,
    origin: Mapping[str, Any],
) -> None:
    """Writes settings, tokenizers, the data report and ``run.json``."""
    directory.remove_partial_files()
    directory.outcome.unlink(missing_ok=True)
    write_json(directory.config, to_json(config))
    save_tokenizers(task.tokenizers, directory.tokenizer)
    write_json(directory.data_report, data.report.content)
    devices = [str(device) for device in update.mesh.devices.flat]
    parameters = count_parameters(without_loss_terms(update.state_shapes.params))
    directory.write_run(devices, config.seed, parameters, **origin)


def _notes_on_budget(origin: Mapping[str, Any]) -> list[str]:
    """A warning where a budget, which measures the CPU, has chosen the size of a run on an accelerator."""
    if "sizing" not in origin or jax.default_backend() == "cpu":
        return []
    remedy = "state sizes and training.num_updates in a new folder"
    return [
        f"--budget measured the CPU: on a {jax.default_backend()} the run may end early; for a larger model {remedy}"
    ]


@contextmanager
def _outcome_of_divergence(run: TrainingRun) -> Iterator[None]:
    """Writes the outcome of a run that diverges, once its checkpoints are on disk: nobody need wait for more of them."""
    try:
        yield
    except TrainingDiverged as error:
        run.checkpoints.wait()
        write_json(run.directory.outcome, {"step": run.number, "reason": "diverged", "problem": str(error)})
        raise


def _finish(run: TrainingRun) -> Outcome:
    """Writes the outcome of the run, once the last checkpoint is on disk."""
    with run.clock.spend("checkpoint"):
        run.checkpoints.wait()
    run.goodput.write(run.number)
    reason = run.reason_to_end or "interrupted"
    signal = run.interruption.number if reason == "interrupted" else 0
    signs = tuple(run.signs.sentences(run.num_updates))
    metric = run.config.selection.key
    outcome = Outcome(run.number, reason, run.counters.best, run.goodput.line(), metric, signal, signs)
    write_json(run.directory.outcome, outcome._asdict())
    return outcome
