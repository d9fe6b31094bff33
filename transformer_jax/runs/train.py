"""From settings and a folder to a trained model: the steps around the loop."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import jax
from jax.sharding import Mesh

from transformer_jax.checkpoints.save_failure import SaveFailed, record_failure
from transformer_jax.config import DataError, ExperimentConfig, load_run_config
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.data.tensorflow_runtime import require_tensorflow
from transformer_jax.runs.callbacks import Callback, Callbacks
from transformer_jax.runs.clock import Clock
from transformer_jax.runs.loop import train_loop
from transformer_jax.runs.outcome import Outcome, TrainingDiverged, summary
from transformer_jax.runs.prepared_run import PreparedRun, ShouldStop, prepare_run
from transformer_jax.runs.profiler import ProfiledSteps, Profiler
from transformer_jax.runs.progress import TrainingProgress
from transformer_jax.runs.record import open_record
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runs.shared_programs import SharedPrograms, TrainingProgram
from transformer_jax.runs.single_run import SingleRun
from transformer_jax.runs.vectorized_runs import End, OnEnd, require_together, vectorized_runs
from transformer_jax.runs.watchdog import watchdog
from transformer_jax.runtime.compilation_cache import start_jax
from transformer_jax.runtime.distributed import (
    ending_with_others,
    first_goes_first,
    from_first,
    is_first,
    join_processes,
    require_same,
    require_shared_folder,
    say,
    wait_until_all_are_done,
)
from transformer_jax.runtime.hardware import fastest_compute_dtype, require_memory, resolve_compute_dtype
from transformer_jax.runtime.preemption import ending_at_once, interruption
from transformer_jax.tasks.protocol import TrainingData
from transformer_jax.tasks.registry import TASKS, objective_of
from transformer_jax.tools.pictures.curves import draw_curves, present_keys
from transformer_jax.training.compiled_step import CompiledStep
from transformer_jax.training.freezing import frozen_mask
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.step import compiler_options

GENERATED = ("grammar", "copy", "reverse")


def train(
    config: ExperimentConfig,
    workdir: str,
    profiled: ProfiledSteps | None = None,
    is_distributed: bool = False,
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Trains, tracing the updates ``profiled``, and says where the result is; the exit status of the command.

    ``is_distributed``: this is one of several processes that do so.

    Raises ConfigError and DataError, nearly all of them before the corpus is tokenized.
    """
    started = time.perf_counter()
    try:
        with ending_with_others() if is_distributed else ending_at_once():
            outcome = run_training(config, workdir, profiled, is_distributed, origin=origin)
            wait_until_all_are_done()
    except TrainingDiverged as error:
        print(error, file=sys.stderr)
        return 1
    except (SaveFailed, OSError) as error:
        print(record_failure(RunDirectory(workdir), error), file=sys.stderr)
        return 1
    say(summary(outcome, RunDirectory(workdir), config, time.perf_counter() - started))
    return 128 + outcome.signal if outcome.signal else 0


def run_training(
    config: ExperimentConfig,
    workdir: str | Path,
    profiled: ProfiledSteps | None = None,
    is_distributed: bool = False,
    shared: SharedPrograms | None = None,
    callbacks: Sequence[Callback] = (),
    origin: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Settings -> tokenizers -> task -> data -> run record -> loop.

    ``shared``: what runs before this one, in this process, prepared and compiled; those after it find what it adds.
    ``origin``: where its settings come from, for ``run.json``.

    Raises ConfigError, DataError and TrainingDiverged.
    """
    clock = Clock()
    shared = shared or SharedPrograms()
    require_tensorflow()
    if is_distributed:
        join_processes()
        require_same(
            repr(config), "--distributed: the processes were started with different settings; use the same command"
        )
    start_jax(config.data.cache_directory)
    mesh = make_mesh(config.mesh)
    with TemporaryDirectory() as scratch:
        directory = RunDirectory(workdir, scratch=None if is_first() else scratch)
        config = run_config(config, directory, mesh)
        with locked_directory(directory):
            tokenizers = shared.tokenizers_of(config, directory)
            program = shared.program_of(config, tokenizers, mesh)
            with prepare_run(
                config, directory, program.task, program.update, callback=Callbacks(callbacks)
            ) as prepared:
                prepared.origin = origin
                data = checked_training_data(program)
                try:
                    return _train_one(prepared, program, data, clock, profiled)
                finally:
                    # The error that ended the run is the one to report: a full disk, a folder that is gone.
                    with suppress(OSError, DataError):
                        _draw_curves(directory, config)


def _train_one(
    run: PreparedRun, program: TrainingProgram, data: TrainingData, clock: Clock, profiled: ProfiledSteps | None
) -> Outcome:
    """The loop of one run, inside all that it needs."""
    profiler = Profiler(profiled if is_first() else None, run.directory.profile)
    progress = TrainingProgress(run.num_updates, run.first_update, is_quiet=not is_first())
    interrupted = interruption()
    with open_record(run, data, clock, interrupted) as record, interrupted, progress, profiler:
        for note in record.notes():
            progress.say(note)
        if record.reason_to_end(run.first_update):
            return record.conclude(run.first_update)
        with closing(CompiledStep(program.update.lower, data.batch_shapes(run.first_update))) as compiled:
            training = SingleRun(record, compiled, progress, clock)
            with watchdog(clock, run.config.training.hang_factor, run.directory.hang):
                number = train_loop(training, data.batches, interrupted, clock, profiler)
        return record.conclude(number)


def train_vectorized(
    configs: Sequence[ExperimentConfig],
    workdirs: Sequence[Path],
    should_stops: Sequence[ShouldStop],
    shared: SharedPrograms,
    on_end: OnEnd = lambda place, end: None,
) -> list[End]:
    """Trains several runs as one program, in one process, spread over all its devices, each model on one of them; or a single
    run, on all devices. Each may be stopped by its own of ``should_stops`` after a validation.

    Each is recorded in its folder as if it were alone; ``on_end`` is called when it has ended, and then the folder is free.
    They have the same structure and data, and the same number of updates behind them. ``shared``: what runs before these, in
    this process, prepared and compiled; those after them find what they add.

    Raises ConfigError and DataError, before any update, when one of them cannot begin; KeyboardInterrupt, once all have ended
    and ``on_end`` was called, when a signal asked to stop.
    """
    clock = Clock(runs=len(configs))
    require_tensorflow()
    start_jax(configs[0].data.cache_directory)
    mesh = make_mesh(configs[0].mesh, jax.devices()[:1] if len(configs) > 1 else None)
    interrupted = interruption()
    with ExitStack() as held:
        each_held = [held.enter_context(ExitStack()) for _ in configs]
        runs = [
            stack.enter_context(_prepared_in(config, RunDirectory(workdir), mesh, shared, should_stop))
            for stack, config, workdir, should_stop in zip(each_held, configs, workdirs, should_stops, strict=True)
        ]
        # Only now: runs that are refused leave what is written of them as it was.
        require_together([run for run, _ in runs])
        (_, program), *_ = runs
        data = checked_training_data(program)
        records = [
            stack.enter_context(open_record(run, data, clock, interrupted))
            for stack, (run, _) in zip(each_held, runs, strict=True)
        ]

        def end_and_release(place: int, end: End) -> None:
            on_end(place, end)
            each_held[place].close()

        updates = max(record.config.training.num_updates for record in records)
        progress = TrainingProgress(updates, records[0].first_update)
        profiler = Profiler(None, records[0].directory.profile)
        try:
            with (
                vectorized_runs(records, program, progress, clock, end_and_release) as training,
                interrupted,
                progress,
                watchdog(clock, configs[0].training.hang_factor, records[0].directory.hang),
            ):
                training.say_notes()
                train_loop(training, data.batches, interrupted, clock, profiler)
        finally:
            for record in records:
                _draw_curves(record.directory, record.config)
            # The signal may have come too late for an update, or while `on_end` was called.
            if interrupted.is_asked:
                raise KeyboardInterrupt(interrupted.number)
    return [training.ends[place] for place in range(len(records))]


@contextmanager
def _prepared_in(
    config: ExperimentConfig, directory: RunDirectory, mesh: Mesh, shared: SharedPrograms, should_stop: ShouldStop
) -> Iterator[tuple[PreparedRun, TrainingProgram]]:
    """A run that can begin, in a folder locked until the end, and the program that trains it."""
    config = run_config(config, directory, mesh)
    with locked_directory(directory):
        program = shared.program_of(config, shared.tokenizers_of(config, directory), mesh)
        with prepare_run(config, directory, program.task, program.update, should_stop) as run:
            yield run, program


def run_config(config: ExperimentConfig, directory: RunDirectory, mesh: Mesh) -> ExperimentConfig:
    """The settings as the run keeps them: folders written out, ``auto`` resolved for ``mesh``.

    Raises ConfigError when the model is larger than the memory, rows do not divide over the devices, nothing or everything is
    frozen, or the compiler does not take ``training.xla_options``, and DataError when there is no validation split.
    """
    compiler_options(config.training, mesh)
    # At least the embeddings, before corpus, tokenizers and tables of that width are made.
    embeddings = 4 * config.model.d_model * config.tokenizer.vocabulary_size
    require_memory(embeddings * len(mesh.local_devices) // mesh.size, mesh.local_devices)
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    if config.training.evaluate_every and (config.data.has_pairs or config.data.directory):
        TASKS[config.task].require_split(config, "validation")
    if config.data.directory and config.data.source in GENERATED:
        say(f"data.directory: not read, since data.source={config.data.source} is generated", file=sys.stderr)
    config = TASKS[config.task].begin(with_absolute_directory(config), directory)
    config = resolve_compute_dtype(config, partial(compute_dtype_of, directory, mesh))
    if config.optimizer.freeze:
        frozen_mask(jax.eval_shape(objective_of(config, mesh).init_params, jax.random.key(0)), config.optimizer.freeze)
    return config


@contextmanager
def locked_directory(directory: RunDirectory) -> Iterator[None]:
    """The folder of a run: writable, seen by all processes, and locked until the end."""
    with ExitStack() as lock:
        with first_goes_first():
            lock.enter_context(directory.locked())
        require_shared_folder(directory.path)
        yield


def checked_training_data(program: TrainingProgram) -> TrainingData:
    """Tokenizes the training split, plans the batches, and prints what they are.

    Raises ConfigError unless all processes read the same.
    """
    data = program.training_data
    same = dict(program.task.identity), [jax.tree.leaves(shape) for shape in data.batch_shapes(0)]
    require_same(
        repr(same), "data: the processes read different data; give all of them the same data.directory content"
    )
    say(data.report.text, file=sys.stderr)
    return data


def _draw_curves(directory: RunDirectory, config: ExperimentConfig) -> None:
    optional = [metric.key for metric in config.metrics if metric.needs]
    shown = dict.fromkeys(("train/loss", "validation/perplexity", config.selection.key, *optional))
    keys = present_keys(directory.metrics, tuple(shown))
    if keys and is_first():
        draw_curves(directory.metrics, keys, directory.curves)


def compute_dtype_of(directory: RunDirectory, mesh: Mesh) -> str:
    """That of the run, once it has checkpoints, on whatever hardware it is resumed; else the one that suits process 0."""

    def find() -> str:
        if directory.has_checkpoints():
            return load_run_config(directory.path).model.compute_dtype
        return fastest_compute_dtype(mesh.devices.flat[0])

    return from_first(find)


def with_absolute_directory(config: ExperimentConfig) -> ExperimentConfig:
    """The settings with the folders that they name written out, so that the run can be evaluated from anywhere."""
    return replace(config, init=config.init.absolute(), data=config.data.absolute())
