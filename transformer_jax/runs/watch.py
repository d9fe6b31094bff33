"""Evaluation of the checkpoints of a run by another process, so that training does not stop to decode."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, DataError, DecodingConfig, ExperimentConfig, load_run_config
from transformer_jax.config.json_text import parse_json
from transformer_jax.config.migration import decoding_of_report
from transformer_jax.runs.metrics_log import MetricsLog
from transformer_jax.runs.run_directory import RunDirectory, write_json
from transformer_jax.runs.trackers import TensorBoard
from transformer_jax.runtime.atomic_files import locked
from transformer_jax.runtime.open_copies import StoreError
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run
from transformer_jax.tasks.task import task_class
from transformer_jax.training.sharding import make_mesh, sharded_shapes
from transformer_jax.training.state import param_shapes

# A checkpoint that cannot be read may be being deleted; after this number of attempts it counts as damaged.
MAX_ATTEMPTS = 3


def watch(
    run: RunDirectory, config: ExperimentConfig, split: str, folder: Path, *, pause: Callable[[], bool | None]
) -> Iterator[str]:
    """Scores every checkpoint on the whole of ``split``, oldest first, and waits for more until the run has ended.

    Yields a line for each. Appends ``SPLIT/METRIC`` for each metric to ``metrics.jsonl`` and TensorBoard events in ``folder``,
    and skips checkpoints that are scored there. ``pause`` waits a while, and returns True if no checkpoint will follow.
    Checkpoints that the run deletes before or while they are read are left out. ``config``: of the run, perhaps with other
    decoding settings.
    Raises DataError, before it waits, when the data has no such split; ConfigError when ``folder`` holds scores of other
    decoding settings, another process is writing them, or the evaluation lacks the selection metric.
    """
    task_class(config.task).require_split(config, split)
    run.require_no_links()
    if folder.is_symlink():
        raise ConfigError(f"--watch: {folder} is a link; put the folder itself there")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "watch.lock", ConfigError(f"--watch: another process is watching {run.path} for {folder}")):
        decoding = config.validated_decoding
        settings: dict[str, object] = {"split": split, "validated": asdict(decoding), "scoring": config.scoring}
        _require_same_decoding(folder / "settings.json", settings, decoding)
        if not run.has_checkpoints():
            yield f"{run.checkpoints}: no checkpoint yet; waiting"
        while not run.has_checkpoints():
            if pause() and not run.has_checkpoints():
                return
        # Scores beyond the newest checkpoint are of an earlier run in this folder.
        newest = run.checkpoint_steps()[-1]
        with (
            closing(MetricsLog(folder / "metrics.jsonl", newest)) as log,
            closing(TensorBoard(folder, None, newest)) as tensorboard,
        ):
            yield from _scored(run, config, split, log, tensorboard, pause)


def _scored(
    run: RunDirectory,
    config: ExperimentConfig,
    split: str,
    log: MetricsLog,
    tensorboard: TensorBoard,
    pause: Callable[[], bool | None],
) -> Iterator[str]:
    """Scores checkpoints until the end of the run; a line for each."""
    selection, mesh = config.selection, make_mesh(config.mesh)
    # All scores, also slow ones: no training waits for them.
    task = task_class(config.with_all_scores.task)(config.with_all_scores, tokenizers_of_run(run), mesh)
    like = sharded_shapes(param_shapes(task.objective.init_params), mesh)
    found = {record["step"]: record[f"{split}/{selection.name}"] for record in log.earlier}
    failures: Counter[int] = Counter()
    refused, is_last = set[int](), None
    while True:
        # Before the folder is read, so that no checkpoint saved before the end is missed.
        is_over = is_last or _is_over(run)
        done = {*found, *(step for step, count in failures.items() if count >= MAX_ATTEMPTS)}
        waiting = [step for step in run.checkpoint_steps() if step > 0 and step not in done]
        if not waiting:
            if is_over:
                return
            is_last = pause()
            continue
        step = waiting[0]
        try:
            with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
                params = checkpoints.restore_params(step, like)
        except StoreError as error:
            if step not in refused:
                yield f"update {step}: {error}; trying again"
            refused.add(step)
            pause()
            continue
        except (DataError, OSError) as error:
            failures[step] += 1
            if step not in run.checkpoint_steps():
                yield f"update {step}: the run deleted the checkpoint before it was read; left out"
                continue
            if failures[step] == MAX_ATTEMPTS:
                yield f"update {step}: left out: {error}"
            pause()
            continue
        evaluation = task.validate(params, split)
        found[step] = selection.value_in(evaluation.metrics)
        metrics = {f"{split}/{name}": value for name, value in evaluation.metrics.items()}
        log.write(step, metrics)
        log.sync()
        tensorboard.write(step, metrics)
        best = selection.best_step({number: value for number, value in found.items() if value is not None})
        remark = "the best so far"
        if best != step:
            is_gone = best not in run.checkpoint_steps()
            remedy = ", which the run deleted: raise training.keep_last" if is_gone else ""
            remark = f"best {selection.text(found[best])} at update {best}{remedy}"
        yield f"update {step}: {split} {evaluation.summary} ({remark})"


def _is_over(run: RunDirectory) -> bool:
    """Whether no more checkpoints will follow: the run has an outcome, or its last update is saved."""
    if load_run_config(run.config).training.num_updates in run.checkpoint_steps():
        return True
    try:
        return bool(parse_json(run.outcome.read_bytes())["reason"] not in ("interrupted", "failed"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _require_same_decoding(path: Path, settings: dict[str, object], decoding: DecodingConfig) -> None:
    """Writes the settings of the scores; raises ConfigError when the folder has scores of other settings."""
    # The run removes the scores of an earlier one in its folder, not these settings.
    if path.is_file() and path.with_name("metrics.jsonl").is_file():
        try:
            # Earlier versions wrote the decoding of ``evaluate``, and ``scoring`` only where the run had another.
            saved = settings | parse_json(path.read_bytes())
            saved.pop("decoding", None)
            saved["validated"] = decoding_of_report(saved["validated"], decoding)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not JSON ({error}); remove it, or give another --output") from None
        if saved != settings:
            raise ConfigError(
                f"--watch: {path.parent} holds scores with {saved}, this command has {settings}; give the same, or another "
                "--output"
            )
    write_json(path, settings)
