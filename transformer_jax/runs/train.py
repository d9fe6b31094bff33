"""From settings and a folder to a trained model: the steps around the loop."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
from jax.sharding import Mesh

from transformer_jax.checkpoints.run_directory import RunDirectory
from transformer_jax.config import ExperimentConfig, load_run_config
from transformer_jax.config.mesh_sizes import require_rows_divide
from transformer_jax.data.tensorflow_runtime import require_tensorflow
from transformer_jax.runs.loop import Ending, OnEnd, Trainer, ignore_end
from transformer_jax.runs.profiler import ProfiledSteps
from transformer_jax.runs.record import Outcome, ShouldStop, TrainingDiverged, TrainingRecord
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.compilation_cache import start_jax
from transformer_jax.runtime.distributed import (
    first_goes_first,
    from_first,
    is_first,
    join_processes,
    require_same,
    require_shared_folder,
    say,
)
from transformer_jax.runtime.hardware import fastest_compute_dtype, resolve_compute_dtype
from transformer_jax.runtime.program_name import program_name
from transformer_jax.tasks.objective import TranslationObjective
from transformer_jax.tasks.shared_programs import SharedPrograms
from transformer_jax.training.freezing import frozen_mask
from transformer_jax.training.sharding import make_mesh
from transformer_jax.visualization.curves import draw_curves, present_keys

CURVES = ("train/loss", "validation/perplexity", "validation/bleu")


def train(
    config: ExperimentConfig, workdir: str, profiled: ProfiledSteps | None = None, is_distributed: bool = False
) -> int:
    """Trains, tracing the updates ``profiled``, and says where the result is; the exit status of the command.

    ``is_distributed``: this is one of several processes that do so.

    Raises ConfigError and DataError, nearly all of them before the corpus is tokenized.
    """
    started = time.perf_counter()
    try:
        outcome = run_training(config, workdir, profiled, is_distributed)
    except TrainingDiverged as error:
        print(error, file=sys.stderr)
        return 1
    say(summary(outcome, RunDirectory(workdir), time.perf_counter() - started))
    return 0


def run_training(
    config: ExperimentConfig,
    workdir: str | Path,
    profiled: ProfiledSteps | None = None,
    is_distributed: bool = False,
    shared: SharedPrograms | None = None,
) -> Outcome:
    """Trains one run.

    ``shared``: what runs before this one, in this process, prepared and compiled; those after it find what it adds.

    Raises ConfigError, DataError and TrainingDiverged.
    """
    started = time.perf_counter()
    require_tensorflow()
    if is_distributed:
        join_processes()
        require_same(
            repr(config), "--distributed: the processes were started with different settings; use the same command"
        )
    start_jax(config.data.cache_directory)
    mesh = make_mesh(config.mesh)
    with TemporaryDirectory() as scratch, ExitStack() as held:
        run = RunDirectory(workdir, scratch=None if is_first() else scratch)
        record = held.enter_context(_record(config, run, mesh, None, shared or SharedPrograms()))
        (ending,) = _train([record], Trainer([record], profiled if is_first() else None), started)
    if isinstance(ending, TrainingDiverged):
        raise ending
    return ending


def run_vectorized(
    configs: Sequence[ExperimentConfig],
    workdirs: Sequence[Path],
    should_stops: Sequence[ShouldStop],
    shared: SharedPrograms,
    on_end: OnEnd = ignore_end,
) -> list[Ending]:
    """Several runs as one program, in one process, spread over all its devices, each model on one of them; or a single
    one, on all devices. Each may be ended by its own of ``should_stops`` after a validation.

    Each is written down in its folder as if it were alone; ``on_end`` is called when it has ended, and then the folder is free.
    They have the same structure and data, and the same number of updates behind them. ``shared``: what runs before
    these, in this process, prepared and compiled; those after them find what they add.

    Raises ConfigError and DataError, before any update, when one of them cannot begin; KeyboardInterrupt, once all have ended
    and are told, when a signal asked to stop.
    """
    started = time.perf_counter()
    require_tensorflow()
    start_jax(configs[0].data.cache_directory)
    mesh = make_mesh(configs[0].mesh, jax.devices()[:1] if len(configs) > 1 else None)
    with ExitStack() as held:
        each_held = [held.enter_context(ExitStack()) for _ in configs]
        records = [
            one.enter_context(_record(config, RunDirectory(workdir), mesh, should_stop, shared))
            for one, config, workdir, should_stop in zip(each_held, configs, workdirs, should_stops, strict=True)
        ]

        def end_and_release(place: int, ending: Ending) -> None:
            on_end(place, ending)
            each_held[place].close()

        trainer = Trainer(records)
        try:
            return _train(records, trainer, started, end_and_release)
        finally:
            # The signal may have come too late for an update, or while somebody was told.
            if trainer.is_asked_to_stop:
                raise KeyboardInterrupt


@contextmanager
def _record(
    config: ExperimentConfig, run: RunDirectory, mesh: Mesh, should_stop: ShouldStop | None, shared: SharedPrograms
) -> Iterator[TrainingRecord]:
    """The record of a run whose settings suit ``mesh``; its folder is nobody else's until the end."""
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    config = resolve_compute_dtype(with_absolute_directory(config), partial(compute_dtype_of, run, mesh))
    if config.optimizer.freeze:
        require_freezable(config, mesh)
    with ExitStack() as lock:
        with first_goes_first():
            require_writable(run.path, "--workdir")
            lock.enter_context(run.locked())
        require_shared_folder(run.path)
        task = shared.task_of(config, shared.tokenizers_of(config, run), mesh)
        with closing(TrainingRecord(config, run, task, mesh, should_stop)) as record:
            yield record


def _train(
    records: Sequence[TrainingRecord], trainer: Trainer, started: float, on_end: OnEnd = ignore_end
) -> list[Ending]:
    task = records[0].task
    same = task.data_identity, task.plan.shapes
    require_same(
        repr(same), "data: the processes read different data; give all of them the same data.directory content"
    )
    say(f"{task.training_store.statistics.table()}\n{task.plan.table()}", file=sys.stderr)
    endings = trainer.train(started, on_end)
    for run in (record.run for record in records):
        keys = present_keys(run.metrics, CURVES)
        if keys and is_first():
            draw_curves(run.metrics, keys, run.curves)
    return endings


def require_freezable(config: ExperimentConfig, mesh: Mesh) -> None:
    """Raises ConfigError, before tokenizers are trained, unless ``optimizer.freeze`` chooses some parameters and not all."""
    vocabulary = config.tokenizer.vocabulary_size
    objective = TranslationObjective(config, vocabulary, vocabulary, mesh)
    frozen_mask(jax.eval_shape(objective.init_params, jax.random.key(0)), config.optimizer.freeze)


def compute_dtype_of(run: RunDirectory, mesh: Mesh) -> str:
    """That of the run, once it has checkpoints, on whatever hardware it is resumed; else the one that suits process 0."""
    if run.has_checkpoints():
        return load_run_config(run.path).model.compute_dtype
    return from_first(lambda: fastest_compute_dtype(mesh.devices.flat[0]))


def with_absolute_directory(config: ExperimentConfig) -> ExperimentConfig:
    """The settings with the folders that they name written out, so that the run can be evaluated from anywhere."""
    config = replace(config, init=config.init.absolute())
    if not config.data.directory:
        return config
    directory = str(Path(config.data.directory).expanduser().absolute())
    return replace(config, data=replace(config.data, directory=directory))


def summary(outcome: Outcome, run: RunDirectory, seconds: float) -> str:
    """What happened, where the run is, what to try next."""
    best = "" if outcome.best_bleu is None else f", best validation BLEU {outcome.best_bleu:.2f}"
    reason = {
        "finished": "finished",
        "patience": "stopped: validation BLEU no longer improved",
        "judged": "stopped after a validation, as asked",
        "interrupted": "interrupted, everything is saved: the same command resumes from here",
    }[outcome.reason]
    return (
        f"{reason} at update {outcome.step}{best}, {seconds / 60:.1f} minutes; run directory {run.path}\n"
        f"  {outcome.time_spent}\n"
        f"  curves: {run.curves}\n"
        f"  {program_name()} evaluate --workdir={run.path} --split=test\n"
        f"  {program_name()} translate --workdir={run.path} < input.txt"
    )
