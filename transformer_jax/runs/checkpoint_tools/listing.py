"""The checkpoints of a run in a table."""

import time

from transformer_jax.checkpoints.format import StoredCheckpoint, bytes_in, were_set_aside
from transformer_jax.checkpoints.selection import best_step, scored_checkpoints, selection_of
from transformer_jax.config import Metric
from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.runs.checkpoint_tools.parameter_table import bytes_text
from transformer_jax.runs.run_directory import RunDirectory

HEAD = ("update", "validation {metric}", "size", "written", "")


def checkpoint_table(run: RunDirectory) -> str:
    """Every checkpoint with its score, size and time, which is best and last; then those set aside because they are damaged."""
    stored = scored_checkpoints(run)
    selection = selection_of(run)
    marks = marks_of(stored, selection)
    rows = [tuple(heading.format(metric=selection.label) for heading in HEAD)]
    for each in stored:
        score = "" if each.score is None else selection.text(each.score)
        rows.append(
            (str(each.step), score, bytes_text(bytes_in(each.folder)), time_text(each.written), marks[each.step])
        )
    total = bytes_text(sum(bytes_in(each.folder) for each in stored))
    lines = [aligned_table(rows, "rrrll")] if stored else []
    lines.append(f"{count_text(len(stored))}, {total}, in {run.checkpoints}")
    aside = were_set_aside(run.path)
    lines += [f"damaged, set aside: {folder}, {bytes_text(bytes_in(folder))}" for folder in aside]
    return "\n".join(lines)


def marks_of(stored: list[StoredCheckpoint], selection: Metric) -> dict[int, str]:
    """Marks of each checkpoint: ``{630: "", 3775: "best, last"}``."""
    sound = [each for each in stored if each.is_sound]
    best = best_step(stored, selection)
    last = sound[-1].step if sound else None
    marks = {}
    for each in stored:
        found = ["best"] * (each.step == best) + ["last"] * (each.step == last)
        found += [] if each.is_sound else ["damaged: its score cannot be read"]
        found += [] if each.can_be_continued else ["parameters alone"]
        marks[each.step] = ", ".join(found)
    return marks


def count_text(count: int) -> str:
    """``1 checkpoint``, ``2 checkpoints``."""
    return f"{count} checkpoint{'' if count == 1 else 's'}"


def time_text(seconds: float) -> str:
    """A time in the time zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
