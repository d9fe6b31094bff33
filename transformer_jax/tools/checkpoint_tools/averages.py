"""Tables and averages of checkpoints, without building a model."""

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.reader import CheckpointReader, on_host
from transformer_jax.config import ConfigError, Metric, from_json, load_run_config, to_json
from transformer_jax.errors import natural_order
from transformer_jax.files.atomic_files import appearing_folder, require_local, require_writable, write_whole
from transformer_jax.files.terminal import text_table
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.selection import (
    basis_of_validations,
    best_step,
    chosen_step,
    selection_of,
    steps_to_average,
)
from transformer_jax.run_directory.stored_checkpoints import (
    StoredCheckpoint,
    bytes_in,
    stored_checkpoints,
    were_set_aside,
)
from transformer_jax.runs.starting import write_run_directory
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.state import count_parameters

# Deeper than any module.
MAX_DEPTH = 100
UNITS = ("KiB", "MiB", "GiB", "TiB")


def checkpoint_table(run: RunDirectory) -> str:
    """Return a table of all checkpoints, and of damaged ones that were set aside."""
    stored = stored_checkpoints(run.checkpoints)
    selection = selection_of(run)
    marks = marks_of(stored, selection)
    rows = [("update", f"validation {selection.heading(basis_of_validations(run))}", "size", "written", "")]
    for checkpoint in stored:
        score = "" if checkpoint.score is None else selection.text(checkpoint.score)
        size = bytes_text(bytes_in(checkpoint.folder))
        rows.append((str(checkpoint.step), score, size, time_text(checkpoint.written), marks[checkpoint.step]))
    total = bytes_text(sum(bytes_in(checkpoint.folder) for checkpoint in stored))
    lines = [text_table(rows, "rrrll")] if stored else []
    lines.append(f"{len(stored)} checkpoint{'s' * (len(stored) != 1)}, {total}, in {run.checkpoints}")
    lines += [f"damaged, set aside: {folder}, {bytes_text(bytes_in(folder))}" for folder in were_set_aside(run.path)]
    return "\n".join(lines)


def marks_of(stored: list[StoredCheckpoint], selection: Metric) -> dict[int, str]:
    """Return marks by update: ``{630: "", 3775: "best, last"}``."""
    sound = [checkpoint for checkpoint in stored if checkpoint.is_sound]
    best = best_step(stored, selection)
    last = sound[-1].step if sound else None
    marks = {}
    for checkpoint in stored:
        texts = ["best"] * (checkpoint.step == best) + ["last"] * (checkpoint.step == last)
        texts += [] if checkpoint.is_sound else ["damaged: its score cannot be read"]
        texts += [] if checkpoint.can_be_continued else ["parameters alone"]
        marks[checkpoint.step] = ", ".join(texts)
    return marks


def describe_checkpoint(run: RunDirectory, which: str, *, has_all: bool = False) -> str:
    """Describe a checkpoint: score, digests of data and settings, parameters by module.

    ``has_all`` adds modules inside modules, and counters. No array is read. Raises CheckpointError
    if the checkpoint cannot be read.
    """
    step = chosen_step(run, which)
    checkpoints = CheckpointReader(run.checkpoints)
    params, rest = checkpoints.shapes(step), checkpoints.shapes(step, "rest")
    progress = checkpoints.progress(step)
    stored, selection = stored_checkpoints(run.checkpoints), selection_of(run)
    here = next(checkpoint for checkpoint in stored if checkpoint.step == step)
    marks = marks_of(stored, selection)[step]
    numbers = {
        name: value for name, value in progress["counters"].items() if value and not isinstance(value, str | dict)
    }
    counters = ", ".join(f"{name} {value:,.10g}" for name, value in numbers.items())
    basis = progress["counters"].get("basis", "")
    score = (
        "not measured" if here.score is None else selection.score(here.score, basis).removeprefix(f"{selection.label} ")
    )
    config = from_json(progress["config"])
    digest = hashlib.sha256(json.dumps(to_json(config), sort_keys=True).encode()).hexdigest()
    whose = "equal to" if config == load_run_config(run.path) else "NOT equal to"
    rows = [
        ("checkpoint", f"{here.folder}{f' ({marks})' if marks else ''}"),
        ("written", f"{time_text(here.written)}, {bytes_text(bytes_in(here.folder))}"),
        ("update", str(step)),
        (f"validation {selection.label}", score),
        ("parameters", parameter_count(params)),
        ("optimizer state", parameter_count(rest["optimizer_state"]) if rest else "none: no run resumes from it"),
        *([("counters", counters)] if counters and has_all else []),
        *sorted(progress["data"].items()),
        ("settings", f"{digest}, {whose} {run.config.name}"),
    ]
    if "average_of" in progress:
        rows.append(("average of", ", ".join(map(str, progress["average_of"]))))
    return f"{text_table(rows, 'll')}\n\n{parameter_table(params, MAX_DEPTH if has_all else 0)}"


def parameter_count(shapes: PyTree) -> str:
    """Return ``11 numbers in 3 arrays, 42 B`` for a tree of arrays or shapes."""
    return f"{count_parameters(shapes):,} numbers in {len(jax.tree.leaves(shapes))} arrays, {_size(shapes)}"


def parameter_table(shapes: Mapping[str, Any], depth: int) -> str:
    """Return a table of modules and, ``depth`` levels down, of their children."""
    first = ("parameters", "shape", "type", "numbers", "bytes")
    last = ("total", "", "", f"{count_parameters(shapes):,}", _size(shapes))
    rows = [row for level, row in _rows(shapes, 0) if level <= depth]
    return text_table([first, *rows, last], "lllrr")


def _rows(tree: Mapping[str, Any], depth: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    for name in sorted(tree, key=natural_order):
        branch = tree[name]
        numbers, size = f"{count_parameters(branch):,}", _size(branch)
        label = "  " * depth + name
        if isinstance(branch, Mapping):
            yield depth, (label, "", "", numbers, size)
            yield from _rows(branch, depth + 1)
        else:
            shape = " x ".join(map(str, branch.shape)) or "scalar"
            yield depth, (label, shape, str(branch.dtype), numbers, size)


def _size(shapes: PyTree) -> str:
    return bytes_text(sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)))


def write_average(source: RunDirectory, steps: Sequence[int], output: str) -> RunDirectory:
    """Write a run with the mean parameters of ``steps`` (Vaswani et al. 2017, section 6.1).

    Step number and counters are of the newest step, and the rest is of the run. Raises ConfigError
    if ``output`` is not empty, CheckpointError if a checkpoint cannot be read.
    """
    require_local(output, "--output")
    if any(Path(output).expanduser().glob("*")):
        raise ConfigError("--output", f"{output} is not empty", "give a folder for the new run")
    target = Path(output).expanduser()
    require_writable(str(target.parent), "--output")
    config = load_run_config(source.path)
    tokenizers = tokenizers_of_run(source)
    checkpoints = CheckpointReader(source.checkpoints)
    like = on_host(checkpoints.shapes(steps[-1]))
    params = jax.tree.map(np.asarray, checkpoints.restore_average(steps, like))
    # The new run has no log.
    progress = {
        key: value for key, value in checkpoints.progress(steps[-1]).items() if key not in ("num_records", "log_digest")
    }
    progress["average_of"] = list(steps)
    origin = {"run": str(source.path.absolute()), "steps": list(steps)}
    try:
        with appearing_folder(target) as folder:
            run = write_run_directory(folder, config, tokenizers, steps[-1], params, progress, average_of=origin)
            if source.data_report.is_file():
                write_whole(run.data_report, source.data_report.read_bytes())
    except OSError as error:
        raise ConfigError("--output", f"{output} cannot be written: {error.strerror or error}") from None
    return RunDirectory(target)


def averaged_steps(run: RunDirectory, count: int, which: str, names: Sequence[str]) -> list[int]:
    """Return the steps ``names``, oldest first, or the ``count`` newest steps up to ``which``.

    Raises ConfigError if a step is there twice, CheckpointError if one does not exist.
    """
    if not names:
        return steps_to_average(run, which, count)
    steps = sorted(chosen_step(run, text.strip()) for text in names)
    if len(set(steps)) < len(steps):
        raise ConfigError("--steps", f"{', '.join(names)} has one twice", "name it once")
    return steps


def bytes_text(count: int) -> str:
    """Return ``512 B``, ``1.5 KiB`` or ``20.6 MiB``."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log2(count) // 10), len(UNITS))
    return f"{count / 1024**power:.1f} {UNITS[power - 1]}"


def time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
