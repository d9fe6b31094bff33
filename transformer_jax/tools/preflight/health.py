"""Checks of an installation and its devices before training: the rows of ``doctor``."""

import math
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax import __version__
from transformer_jax.array_types import PyTree
from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict, scheduled_hyperparameters_of
from transformer_jax.files.atomic_files import appearing_file
from transformer_jax.run_directory.layout import REPORTED_PACKAGES
from transformer_jax.runtime.distributed import from_all, require_shared_folder
from transformer_jax.runtime.hardware import host_usage
from transformer_jax.runtime.startup import available_cores
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows, replicated, row_groups
from transformer_jax.training.update import Update

# Error of an update, relative to the largest entry of an array. Rounding is ten times smaller.
TOLERANCE = 1e-4


class Check(NamedTuple):
    """A row of the report."""

    name: str
    is_right: bool
    detail: str


def small_config() -> ExperimentConfig:
    """Return a Transformer with one layer per side and more than 2^15 logits.

    Adam's first moment is the gradient.
    """
    return from_dict(
        {
            "tokenizer": {"vocabulary_size": 2**15 + 16},
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "d_model": 16,
                "d_ff": 32,
                "num_heads": 4,
                "dropout": 0.0,
                "embedding_dropout": 0.0,
                "compute_dtype": "float32_exact",
            },
            "optimizer": {"schedule": "constant", "learning_rate": 0.1, "b1": 0.0, "epsilon": 0.01},
        }
    )


def fitted(config: ExperimentConfig, mesh: Mesh) -> ExperimentConfig:
    """Round heads, widths and vocabulary up until they divide over ``mesh``."""
    tensor, fsdp, model = mesh.shape["tensor"], mesh.shape["fsdp"], config.model
    num_heads = rounded_up(model.num_heads, tensor * mesh.shape["context"])
    d_model = rounded_up(model.d_model, math.lcm(4 * num_heads, fsdp))
    d_ff = rounded_up(model.d_ff, math.lcm(tensor, fsdp))
    vocabulary_size = rounded_up(config.tokenizer.vocabulary_size, tensor)
    return replace(
        config,
        tokenizer=replace(config.tokenizer, vocabulary_size=vocabulary_size),
        model=replace(model, num_heads=num_heads, d_model=d_model, d_ff=d_ff),
    )


def rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def checks(config: ExperimentConfig, folder: Path) -> Iterator[Check]:
    """Yield all checks: ``config`` is trained for one update, and ``folder`` is written to.

    Every process makes every check, and a row combines their results. Raises ConfigError if the
    mesh does not fit the devices.
    """
    yield checked("versions", versions, must_agree=True)
    yield checked("devices", devices)
    yield checked("memory", memory)
    mesh = make_mesh(config.mesh)
    config = fitted(config, mesh)
    batch = random_batch(config, rounded_up(8, 2 * row_groups(mesh)), rounded_up(16, mesh.shape["context"]))
    # The first check that needs it reports an error.
    compiled = cache(lambda: after_one_update(config, mesh, batch))

    def eager() -> str:
        single = make_mesh(MeshConfig(data=1), jax.local_devices()[:1])
        return require_equal(compiled(), after_one_update(config, single, batch, is_compiled=False))

    def parts() -> str:
        halved = replace(config, batching=replace(config.batching, accumulation_steps=2))
        sizes = " x ".join(f"{axis}={size}" for axis, size in mesh.shape.items() if size > 1) or "one device"
        return f"{require_equal(after_one_update(halved, mesh, batch), compiled())} ({sizes})"

    yield checked("compiled = eager", eager)
    yield checked("1 = 2 parts (openxla 49143)", parts)
    yield checked("sum over devices", lambda: sum_over_devices(mesh))
    written = checked("run folder", lambda: write_and_read(folder))
    yield written
    if written.is_right and jax.process_count() > 1:
        yield checked("shared run folder", lambda: seen_by_all(folder))


def checked(name: str, describe: Callable[[], str], *, must_agree: bool = False) -> Check:
    """Return the row with the detail of ``describe``, or with an error of any process."""
    try:
        here = Check(name, True, describe())
    except Exception as error:
        here = Check(name, False, next(iter(str(error).splitlines()), "") or type(error).__name__)
    return of_all(here, must_agree=must_agree)


def of_all(here: Check, *, must_agree: bool = False) -> Check:
    """Return the combined rows of all processes: the row of process 0, or the rows that are wrong.

    With ``must_agree`` the details must be equal.
    """
    rows = [Check(**row) for row in from_all(f"doctor/{here.name}", here._asdict())]
    processes: dict[str, list[int]] = {}
    for process, row in enumerate(rows):
        if not row.is_right or must_agree:
            processes.setdefault(row.detail, []).append(process)
    is_right = all(row.is_right for row in rows) and len(processes) <= 1
    if is_right or len(rows) == 1:
        return rows[0]
    numbers = {text: ", ".join(map(str, some[:8])) + ", ..." * (len(some) > 8) for text, some in processes.items()}
    return Check(here.name, False, "; ".join(f"process {some}: {text}" for text, some in numbers.items()))


class Unsound(Exception):
    """A check that failed, with a few words."""


def versions() -> str:
    """Return the versions of Python and of the packages that compute."""
    packages = (f"{name} {metadata.version(name)}" for name in REPORTED_PACKAGES[:6])
    return ", ".join((f"Python {platform.python_version()}", f"transformer_jax {__version__}", *packages))


def devices() -> str:
    """Return kind and number of devices, and the cores of the host."""
    kinds = sorted({device.device_kind for device in jax.devices()})
    flags = f"; XLA_FLAGS={flags}" if (flags := os.environ.get("XLA_FLAGS", "")) else ""
    count = f"{jax.device_count()} {jax.default_backend()} ({', '.join(kinds)}){_of_processes()}"
    return f"{count}; {available_cores()} cores, {platform.machine()}{flags}"


def _of_processes() -> str:
    return f" of {jax.process_count()} processes" if jax.process_count() > 1 else ""


def memory() -> str:
    """Return the memory of the host, and of devices that have memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return f"host {total / 2**30:.1f} GiB" + (f", each device {limit / 2**30:.1f} GiB" if limit else "")


def after_one_update(config: ExperimentConfig, mesh: Mesh, batch: PyTree, *, is_compiled: bool = True) -> PyTree:
    """Return state and metrics after the first update, on the host of every process."""
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
    hyperparameters = put_hyperparameters(scheduled_hyperparameters_of(config), mesh)
    arguments = update.initial_state(0), put_rows(batch, mesh), hyperparameters
    if is_compiled:
        whole = jax.jit(lambda result: result, out_shardings=replicated(mesh))
        return jax.device_get(whole(update.jitted(*arguments)))
    with jax.disable_jit():
        return jax.device_get(update.step(*arguments))


def random_batch(config: ExperimentConfig, rows: int, width: int) -> Batch:
    """Return pairs of random tokens, a third of them shorter than ``width``."""
    ids = np.random.default_rng(0).integers(4, config.tokenizer.vocabulary_size, (2, rows, width)).astype(np.int32)
    ids[:, ::3, width // 2 :] = 0
    return jax.tree.map(np.asarray, Batch(*map(Tokens.from_ids, ids)))


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error divided by the largest expected entry, infinite for NaN."""
    error = np.max(np.abs(values.astype(np.float64) - expected), initial=0.0)
    error /= max(np.max(np.abs(expected), initial=0.0), 1e-30)
    return float(error) if np.isfinite(error) else math.inf


def require_equal(result: PyTree, expected: PyTree) -> str:
    """Return the largest relative error as text. Raise Unsound if it exceeds ``TOLERANCE``."""
    leaves = zip(jax.tree_util.tree_leaves_with_path(result), jax.tree.leaves(expected), strict=True)
    errors = {
        jax.tree_util.keystr(path, simple=True, separator="/"): relative_error(np.asarray(leaf), np.asarray(other))
        for (path, leaf), other in leaves
    }
    worst = max(errors, key=lambda path: errors[path])
    if errors[worst] > TOLERANCE:
        raise Unsound(f"relative error {errors[worst]:.1e} in {worst}")
    return f"relative error {errors[worst]:.0e}"


def sum_over_devices(mesh: Mesh) -> str:
    """Sum a number per device."""
    axes = mesh.axis_names
    add = jax.shard_map(lambda number: lax.psum(number, axes), mesh=mesh, in_specs=P(axes), out_specs=P())
    numbers = np.arange(mesh.size, dtype=np.int32)
    placed = jax.make_array_from_callback(numbers.shape, NamedSharding(mesh, P(axes)), numbers.__getitem__)
    total, expected = int(np.asarray(jax.jit(add)(placed))[0]), mesh.size * (mesh.size - 1) // 2
    if total != expected:
        raise Unsound(f"{total} instead of {expected}")
    return f"{mesh.size} devices{_of_processes()}"


def write_and_read(folder: Path) -> str:
    """Write, read and remove a file in the nearest existing folder."""
    existing = nearest_folder(folder)
    file, content = existing / f".doctor.{jax.process_index()}.{os.getpid()}", os.urandom(2**20)
    try:
        with appearing_file(file) as target:
            target.write(content)
        if file.read_bytes() != content:
            raise Unsound(f"{existing}: a file reads back other bytes than were written")
    finally:
        file.unlink(missing_ok=True)
    return f"{existing}, {host_usage(existing)['host/free_disk_gb']:.0f} GB free"


def seen_by_all(folder: Path) -> str:
    """Raise ConfigError unless every process sees the files of process 0."""
    existing = nearest_folder(folder)
    require_shared_folder(existing)
    return f"{existing}, seen by {jax.process_count()} processes"


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest parent that exists."""
    whole = folder.expanduser().absolute()
    return next(parent for parent in (whole, *whole.parents) if parent.is_dir())
