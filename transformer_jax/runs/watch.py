"""Evaluation of the checkpoints of a run from another process, so that the run need not stop to decode."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config
from transformer_jax.config.conversion import without_removed
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.metrics_log import MetricsLog, read_metrics
from transformer_jax.runs.run_directory import RunDirectory, write_json
from transformer_jax.runs.trackers import TensorBoard
from transformer_jax.runtime.atomic_files import locked
from transformer_jax.tasks.registry import TASKS, build_task
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.training.sharding import make_mesh, placed_shapes

# A checkpoint that exists but cannot be read is being deleted or damaged; after so many attempts it counts as damaged.
LOOKS = 3


def watch(
    run: RunDirectory,
    config: ExperimentConfig,
    split: str,
    folder: Path,
    *,
    pause: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Scores every checkpoint on the whole of ``split``, oldest first, and waits for more until the run has ended.

    Appends ``SPLIT/METRIC`` for each metric to ``metrics.jsonl`` and TensorBoard events in ``folder``, after every checkpoint:
    what is there is not done again. ``pause`` waits a while. The checkpoints are only read; one that the run deletes before
    or while it is read is left out. Programs are compiled once. ``config`` is that of the run, perhaps decoding otherwise.
    Raises DataError, before it waits, when the data has no such split; ConfigError when ``folder`` holds scores of other
    decoding settings, or another process is writing them.
    """
    # Fails on the first pair if the split does not exist.
    TASKS[config.task].require_split(config, split)
    run.require_no_links()
    if folder.is_symlink():
        raise ConfigError(f"--watch: {folder} is a link; put the folder itself there")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "watch.lock", ConfigError(f"--watch: another process is watching {run.path} for {folder}")):
        settings: dict[str, object] = {"split": split, "decoding": asdict(config.decoding)}
        if config.scoring != load_run_config(run.path).scoring:
            settings["scoring"] = config.scoring
        _require_same_decoding(folder / "settings.json", settings)
        if not run.has_checkpoints():
            say(f"{run.checkpoints}: no checkpoint yet; waiting")
        while not run.has_checkpoints():
            pause()
        # What was measured beyond the newest checkpoint belongs to a run that was reset or restarted.
        newest = run.checkpoint_steps()[-1]
        with closing(MetricsLog(folder / "metrics.jsonl", newest, [TensorBoard(folder, None, newest)])) as log:
            Watcher(run, config, split, log, say).follow(folder / "metrics.jsonl", pause)


class Watcher:
    """A task, and its results: values of the selection metric by update."""

    def __init__(
        self, run: RunDirectory, config: ExperimentConfig, split: str, log: MetricsLog, say: Callable[[str], None]
    ) -> None:
        self._run, self._split, self._log, self._say = run, split, log, say
        mesh = make_mesh(config.mesh)
        # No device waits for the scores.
        self._task = build_task(config.with_all_scores, tokenizers_of_run(run), mesh)
        self._selection = config.selection
        self._like = placed_shapes(jax.eval_shape(self._task.init_params, jax.random.key(0)), mesh)
        self._found: dict[int, float] = {}
        self._failures: Counter[int] = Counter()

    def follow(self, log: Path, pause: Callable[[], None]) -> None:
        """Scores and waits, from what is in the ``log`` to the end of the run."""
        self._found = {record["step"]: record[f"{self._split}/{self._selection.name}"] for record in read_metrics(log)}
        while True:
            # Asked before the folder is read: what the run saved before its end is then seen.
            is_over = _is_over(self._run)
            left_out = {step for step, failures in self._failures.items() if failures >= LOOKS}
            done = left_out | set(self._found)
            waiting = [step for step in self._run.checkpoint_steps() if step > 0 and step not in done]
            if waiting and self._evaluate(waiting[0]):
                continue
            if not waiting and is_over:
                return
            pause()

    def _evaluate(self, step: int) -> bool:
        """Whether the checkpoint of ``step`` is finished with: it was scored, or deleted."""
        params = self._params(step)
        if params is None:
            return step not in self._run.checkpoint_steps()
        found = self._task.evaluate(params, self._split)
        self._log.write(step, {f"{self._split}/{name}": value for name, value in found.metrics.items()})
        self._log.sync()
        self._found[step] = found.metrics[self._selection.name]
        self._say(f"update {step}: {self._split} {found.summary} ({self._remark(step)})")
        return True

    def _params(self, step: int) -> PyTree | None:
        """The parameters of a checkpoint; None, and the reason is printed, when it cannot be read."""
        try:
            with closing(Checkpoints(self._run.checkpoints, read_only=True)) as checkpoints:
                return checkpoints.restore_params(step, self._like)
        except (DataError, OSError) as error:
            self._failures[step] += 1
            if step not in self._run.checkpoint_steps():
                self._say(f"update {step}: the run deleted the checkpoint before it was read; left out")
            elif self._failures[step] == LOOKS:
                self._say(f"update {step}: left out: {error}")
            return None

    def _remark(self, step: int) -> str:
        """Remark: whether it is the best so far, or which one is and whether that is kept."""
        best = self._selection.best_step({step: value for step, value in self._found.items() if value is not None})
        if best == step:
            return "the best so far"
        is_gone = best not in self._run.checkpoint_steps()
        remedy = ", which the run deleted: raise training.keep_last" if is_gone else ""
        return f"best {self._selection.text(self._found[best])} at update {best}{remedy}"


def _is_over(run: RunDirectory) -> bool:
    """Whether no checkpoint will follow: the run has an outcome, or its last update is saved."""
    if load_run_config(run.config).training.num_updates in run.checkpoint_steps():
        return True
    try:
        return bool(parse_json(run.outcome.read_bytes())["reason"] not in ("interrupted", "failed"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _require_same_decoding(path: Path, settings: dict[str, object]) -> None:
    """Writes the settings; raises ConfigError when others are there, whose scores must not be mixed with these."""
    if path.is_file():
        try:
            saved = without_removed(parse_json(path.read_bytes()))
        except (ValueError, AttributeError) as error:
            raise DataError(f"{path}: not JSON ({error}); remove it, or give another --output") from None
        if saved != settings:
            raise ConfigError(
                f"--watch: {path.parent} holds scores with {saved}, this command has {settings}; give the same, or another "
                "--output"
            )
    write_json(path, settings)


def seconds(count: float) -> Callable[[], None]:
    """Returns a function that sleeps for so many seconds."""
    return lambda: time.sleep(count)
