"""Description of one checkpoint, from its metadata: no model is built, and no array is read."""

import hashlib
import json
from contextlib import closing

from transformer_jax.checkpoints.format import bytes_in
from transformer_jax.checkpoints.manager import Checkpoints, Progress
from transformer_jax.checkpoints.selection import chosen_step, scored_checkpoints, selection_of
from transformer_jax.config import from_json, load_run_config, to_json
from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.runs.checkpoint_tools.listing import marks_of, time_text
from transformer_jax.runs.checkpoint_tools.parameter_table import bytes_text, parameter_count, parameter_table
from transformer_jax.runs.run_directory import RunDirectory


def describe_checkpoint(run: RunDirectory, which: str) -> str:
    """Its parameters module by module, what else is in it, and what it was trained on.

    Raises CheckpointError when there is no such checkpoint, or it cannot be read.
    """
    step = chosen_step(run, which)
    with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
        params, rest = checkpoints.shapes(step), checkpoints.shapes(step, "rest")
        progress = checkpoints.progress(step)
    stored, selection = scored_checkpoints(run), selection_of(run)
    here = next(each for each in stored if each.step == step)
    marks = marks_of(stored, selection)[step]
    rows = [
        ("checkpoint", f"{here.folder}{f' ({marks})' if marks else ''}"),
        ("written", f"{time_text(here.written)}, {bytes_text(bytes_in(here.folder))}"),
        ("update", str(step)),
        (f"validation {selection.label}", "not measured" if here.score is None else selection.text(here.score)),
        ("parameters", str(parameter_count(params))),
        ("optimizer state", str(parameter_count(rest["optimizer_state"])) if rest else "none: no run resumes from it"),
        *_identity(run, progress),
    ]
    return f"{aligned_table(rows, 'll')}\n\n{parameter_table(params)}"


def settings_digest(progress: Progress) -> str:
    """SHA-256 of the settings that a checkpoint was written with, the same whatever version wrote them."""
    settings = to_json(from_json(progress["config"]))
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _identity(run: RunDirectory, progress: Progress) -> list[tuple[str, str]]:
    counters = ", ".join(f"{name} {value:,.10g}" for name, value in progress["counters"].items() if value)
    is_same = from_json(progress["config"]) == load_run_config(run.path)
    settings = f"{settings_digest(progress)}, {'those' if is_same else 'NOT those'} of {run.config.name}"
    counted = [("counters", counters)] if counters else []
    rows = [*counted, *sorted(progress["data"].items()), ("settings", settings)]
    if "average_of" in progress:
        rows.append(("average of", ", ".join(map(str, progress["average_of"]))))
    return rows
