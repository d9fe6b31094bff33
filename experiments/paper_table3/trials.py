"""The trials of a sweep that have ended, measured: perplexity and translations of a split, size,
operations, time."""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax

from transformer_jax.config import DataError, ExperimentConfig, MeshConfig, difference, load_run_config, may_change
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.sequence_types import batch_shape
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.compiled_program import model_flops
from transformer_jax.tools.study.sweeps import ROW, Sweep
from transformer_jax.tools.study.translation_comparison import Side, choose_run, translated

# Where the data lie and what devices compute changes nothing of what a trial is.
OF_THE_MACHINE = "data.directory", "data.cache_directory", "evaluation.", "mesh."
# A run saves their values for its device where the sweep leaves them open.
OF_THE_DEVICE = "model.compute_dtype", "batching.width_multiple"
Shape = tuple[int, int, int]


class Trial(NamedTuple):
    """A row of the table with one seed.

    ``update_flops`` are the operations of the matrix products of an update, padding included, the
    mean over an epoch; ``update_seconds`` what all ``updates`` took, without compilation, waiting
    for data, validations and checkpoints.
    """

    row: str
    seed: int
    perplexity: float
    bleu: float
    hypotheses: list[str]
    references: list[str]
    parameters: int
    updates: int
    update_flops: float
    update_seconds: float
    devices: int
    signature: str
    commit: str


def finished_trials(
    sweep: Sweep, workdir: Path, split: str, average: Callable[[str], int]
) -> tuple[list[Trial], list[str]]:
    """Measures what has ended; and which others there are, ``["base, seed 1", ...]``.

    ``average``: of how many checkpoints the last parameters of a row are the mean.
    """
    found, missing = [], []
    there = {folder: load_run_config(folder) for folder in sorted((workdir / "trials").glob("*")) if ended(folder)}
    for point in sweep.points():
        config = sweep.settings(point)
        row, seed = str(point[ROW]), config.seed
        folder = next((folder for folder, trained in there.items() if is_same(trained, config)), None)
        if folder is not None:
            found.append(
                measured(row, seed, folder, translated(choose_run(folder, config, split, "last", average(row))))
            )
        else:
            missing.append(f"{row}, seed {seed}")
    return found, missing


def ended(folder: Path) -> bool:
    """Whether the training came to its end."""
    outcome = RunDirectory(folder).outcome
    return outcome.is_file() and json.loads(outcome.read_text(encoding="utf-8"))["reason"] in ("finished", "patience")


def is_same(trained: ExperimentConfig, config: ExperimentConfig) -> bool:
    """Whether a run with the one settings is a run with the other."""
    keys = [key for key, _, _ in difference(trained, config) if not key.startswith(OF_THE_MACHINE)]
    return all(key in OF_THE_DEVICE and may_change(key, trained, config) for key in keys)


def measured(row: str, seed: int, folder: Path, side: Side) -> Trial:
    """Reads what the run has written down, and counts its operations."""
    references = [pair.target for pair in side.pairs]
    scores = score_translations(side.evaluation.hypotheses, references)
    run = RunDirectory(folder)
    start = read_json(folder / "run.json")[-1]
    sheet = read_json(run.goodput)
    batches = read_json(run.data_report)["batches"]["batches"]
    shapes = tuple(
        ((batch["rows"], batch["source_width"], batch["target_width"]), int(batch["batches"])) for batch in batches
    )
    return Trial(
        row=row,
        seed=seed,
        perplexity=side.evaluation.report["perplexity"],
        bleu=scores.values["bleu"],
        hypotheses=side.evaluation.hypotheses,
        references=references,
        parameters=start["parameters"],
        updates=sheet["step"],
        update_flops=mean_flops(replace(load_run_config(folder), seed=0, mesh=MeshConfig()), shapes),
        update_seconds=sheet["seconds"]["step"],
        devices=len(start["devices"]),
        signature=scores.signatures["bleu"],
        commit=start["git_commit"],
    )


@functools.cache
def mean_flops(config: ExperimentConfig, shapes: Sequence[tuple[Shape, int]]) -> float:
    """Operations of an update's matrix products, the mean over an epoch with these numbers of
    batches of each shape."""
    here = Topology("here", jax.devices()[:1], None)
    total = sum(count * model_flops(config, here, batch_shape(*shape)) for shape, count in shapes)
    return total / sum(count for _, count in shapes)


def read_json(file: Path) -> dict:
    """Raises DataError when it is not there, or is not JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: {error}; the run is damaged") from None
