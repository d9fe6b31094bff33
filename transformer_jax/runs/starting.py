"""The start of a run: settings resolved for the devices, lock, checks, and the first files."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config, to_json
from transformer_jax.config.data import GENERATED_SOURCES
from transformer_jax.config.optimization import require_rows_divide
from transformer_jax.data.tensorflow_runtime import require_tensorflow
from transformer_jax.data.tokenizers import TokenizerPair, save_tokenizers
from transformer_jax.errors import StoreError
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.checked_json import with_crc
from transformer_jax.files.paths import as_path, in_store
from transformer_jax.run_directory.layout import IDS_FILE, RunDirectory, write_json
from transformer_jax.runs.progress import LOGGER
from transformer_jax.runtime.distributed import (
    first_goes_first,
    from_first,
    is_first,
    require_same,
    require_shared_folder,
)
from transformer_jax.runtime.hardware import DeviceSettings, require_memory, resolve_for_device, settings_on, start_jax
from transformer_jax.runtime.process_group import join_processes
from transformer_jax.tasks.task import Task, TrainingData, objective_of
from transformer_jax.training.parameters import frozen_mask
from transformer_jax.training.state import count_parameters, param_shapes, without_loss_terms
from transformer_jax.training.update import Update, compiler_options


def start_process(config: ExperimentConfig, task_type: type[Task], *, is_distributed: bool) -> None:
    """Start JAX, and join the other processes of a distributed run. Raises ConfigError."""
    if task_type.needs_tensorflow:
        require_tensorflow()
    if is_distributed:
        join_processes()
        require_same(repr(config), "--distributed", "the processes have different settings", "use the same command")
    start_jax(config.data.cache_directory)


@contextmanager
def directory_of_process(workdir: str | Path) -> Iterator[RunDirectory]:
    """Yield the run directory of this process. Only process 0 leaves files besides checkpoints."""
    path = as_path(workdir)
    with ExitStack() as stack:
        scratch = None
        if in_store(path) or not is_first():
            # Trackers take the name of the run from it.
            scratch = Path(stack.enter_context(TemporaryDirectory())) / path.name
            scratch.mkdir()
        yield RunDirectory(path, scratch, is_first=is_first())


@contextmanager
def locked_run(directory: RunDirectory) -> Iterator[None]:
    """Lock the folder of a run. Raises ConfigError unless all processes see it and can write."""
    with ExitStack() as lock:
        with first_goes_first("lock of the run"):
            if is_first() or not in_store(directory.path):
                lock.enter_context(directory.locked())
        if not in_store(directory.path):
            require_shared_folder(directory.path)
        try:
            yield
        except BaseException:
            # The error that ends the run is the one to report.
            with suppress(StoreError):
                directory.publish()
            raise
        directory.publish()


def resolved_config(
    config: ExperimentConfig, task_type: type[Task], directory: RunDirectory, mesh: Mesh
) -> ExperimentConfig:
    """Return the settings that the run saves: paths absolute, ``auto`` resolved for the devices.

    Raises ConfigError when no new run should begin with the settings, the model is larger than the
    memory, rows do not divide over the devices, nothing or everything is frozen, or the compiler
    does not take ``training.xla_options``, and DataError when there is no validation split.
    """
    compiler_options(config.training, mesh)
    is_new = not directory.has_checkpoints()
    if is_new:
        config.check_new_run()
    # The embeddings alone, before the corpus is read. require_state_fits checks the whole state.
    embeddings = 4 * config.model.d_model * config.tokenizer.vocabulary_size
    require_memory(embeddings * len(mesh.local_devices) // mesh.size, mesh.local_devices)
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, mesh.shape)
    if config.training.evaluate_every and (
        config.data.has_pairs or config.data.directory or getattr(config.data, "validation", "")
    ):
        task_type.require_split(config, "validation")
    if config.data.directory and config.data.source in GENERATED_SOURCES:
        LOGGER.info("data.directory: not read, since data.source=%s is generated", config.data.source)
    config = replace(config, init=config.init.absolute(), data=config.data.absolute())
    config = task_type.begin(config, directory)
    config = resolve_for_device(config, partial(_device_settings, directory, mesh))
    if is_new:
        config.check_new_run()
    if config.optimizer.freeze:
        frozen_mask(param_shapes(objective_of(config, mesh).init_params), config.optimizer.freeze)
    return config


def _device_settings(directory: RunDirectory, mesh: Mesh) -> DeviceSettings:
    """Return the saved settings, or for a new run the settings for the device of process 0."""

    def find() -> DeviceSettings:
        if not directory.has_checkpoints():
            return settings_on(mesh.devices.flat[0])
        saved = load_run_config(directory.path)
        return DeviceSettings(saved.model.compute_dtype, getattr(saved.batching, "width_multiple", 0))

    return DeviceSettings(*from_first(find, "settings of the devices"))


def require_objective(task: Task) -> None:
    """Raise ConfigError when the objective of a plugin's task lacks something."""
    if missing := {"init_params", "loss", "activations", "update_rule"} - set(dir(task.objective)):
        raise ConfigError(f"task={task.config.task}", f"its objective lacks {', '.join(sorted(missing))}")


def require_state_fits(update: Update) -> None:
    """Raise ConfigError when parameters and optimizer state exceed the memory of the devices."""
    devices = update.mesh.local_devices
    leaves = jax.tree.leaves(update.state_shapes)
    shards = (math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    require_memory(len(devices) * sum(shards), devices)


def require_same_batches(task: Task, data: TrainingData, update: int) -> None:
    """Raise ConfigError when processes read different data."""
    same = dict(task.identity), [jax.tree.leaves(shape) for shape in data.batch_shapes(update)]
    require_same(repr(same), "data", "the processes read different data", "give all of them the same text")


def write_run_files(
    directory: RunDirectory, update: Update, task: Task, data: TrainingData, origin: Mapping[str, Any]
) -> None:
    """Write settings, tokenizers, the data report and ``run.json``."""
    directory.remove_partial_files()
    directory.outcome.unlink(missing_ok=True)
    if in_store(directory.tracker_ids):
        with suppress(FileNotFoundError):
            write_whole(directory.local / IDS_FILE, directory.tracker_ids.read_bytes())
    write_json(directory.config, with_crc(to_json(task.config)))
    save_tokenizers(task.tokenizers, directory.tokenizer)
    write_json(directory.data_report, with_crc(data.report.content))
    devices = [str(device) for device in update.mesh.devices.flat]
    parameters = count_parameters(without_loss_terms(update.state_shapes.params))
    directory.write_run(devices, task.config.seed, parameters, **origin)


def write_run_directory(
    folder: Path,
    config: ExperimentConfig,
    tokenizers: TokenizerPair,
    step: int,
    params: PyTree,
    progress: Mapping[str, Any],
    **origin: Any,
) -> RunDirectory:
    """Write settings, tokenizers, ``run.json`` with ``origin``, and one checkpoint of ``params``.

    Without an optimizer state it can be evaluated and start a new run, but not be resumed.
    """
    run = RunDirectory(folder)
    write_json(run.config, with_crc(to_json(config)))
    save_tokenizers(tokenizers, run.tokenizer)
    run.write_run([], config.seed, count_parameters(without_loss_terms(params)), **origin)
    with closing(Checkpoints(run.checkpoints)) as checkpoints:
        checkpoints.save_params(step, params, dict(progress))
    return run
