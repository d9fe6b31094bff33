import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import (
    chosen_runs,
    commands_to_try,
    ensemble_flag,
    open_runs,
    run_config,
    run_flags,
)
from transformer_jax.commands.stored_runs import run_on_copies
from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config
from transformer_jax.config.recipes import CONFIG_FILE
from transformer_jax.evaluation.text_table import text_table
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.object_store import SharedFolder
from transformer_jax.runtime.open_copies import StoreError, refresh_copy, with_addresses


@flags.command(
    run_flags,
    ensemble_flag,
    flags.distributed,
    flags.boolean("json", False, "print JSON instead of text"),
    flags.string("split", "test", "train, validation, test, or a name in the data (default of --watch: validation)"),
    flags.string("source", None, "file to score instead of a split, plain, .gz or .xz"),
    flags.repeated("references", [], "files of translations of --source, one for each of several references"),
    flags.integer("examples", 5, "how many translations to print beside their references", lower_bound=0),
    flags.string("output", None, "folder for the results (default: the run directory)"),
    flags.boolean("watch", False, "score every new checkpoint of a run in progress"),
    flags.number("poll_seconds", 30.0, "with --watch: seconds between two looks for new checkpoints", lower_bound=0.1),
)
def evaluate(values: flags.Values) -> int:
    """Score a trained model on a whole split: translations against raw references, or bits per byte of raw text.

    Example:
        transformer-jax evaluate --workdir=runs/m30k --split=test --checkpoint=last --average=5 --config.decoding.beam_width=5
        transformer-jax evaluate --workdir=runs/a --ensemble=runs/b,runs/c:4000
        transformer-jax evaluate runs/m30k --source=news.en --references=news.de
        transformer-jax evaluate runs/m30k --config.evaluation.metrics=bleu,ter --config.evaluation.bleu_tokenizer=intl
        transformer-jax evaluate --workdir=runs/m30k --watch

    Prints a table and writes evaluation-SPLIT-STEP.json into the run directory, and beside it the translations, one a line.
    Settings of decoding and of scores can be changed, and are then part of the name; so can the devices and the location of
    the data. With --ensemble the models of several runs, of any kind, are scored as one: every next token has the mean of their
    probabilities. They must share their tokenizers; decoding, devices and data come from --workdir.

    --watch scores every checkpoint of a run that another process trains as it appears, on the whole of --split (default:
    validation), so that the run itself need not validate (--config.training.evaluate_every=0). Give this process its own
    device: CUDA_VISIBLE_DEVICES, or JAX_PLATFORMS=cpu. It writes metrics.jsonl and TensorBoard events to evaluate-SPLIT/ in the
    run directory; --checkpoint=best uses these scores if the run has none. It decodes as validations do, with
    training.validation_beam_width, unless --config.decoding.beam_width is given. It waits for a run that has not begun, or was
    interrupted or killed, and ends with the run, or, after SIGUSR1, when all checkpoints are scored.
    """
    if values.watch:
        return _wait_and_watch(values)
    config = run_config(values)
    if config.scores_translations:
        config.evaluation.require_installed(config.data.target_language)
    if not values.distributed:
        return _score(values, config)
    from transformer_jax.runtime.distributed import ending_with_others

    with ending_with_others():
        return _score(values, config)


def _score(values: flags.Values, config: ExperimentConfig) -> int:
    chosen = chosen_runs(values, config)
    from transformer_jax.data.corpora import require_readable

    if not (values.source or values.references) and config.data.source != "tfds":
        require_readable(config, values.split)
    # This imports JAX.
    from transformer_jax.tasks.task import task_class
    from transformer_jax.tasks.texts import open_text_or_none

    has_split = bool(values["split"].present)
    text = open_text_or_none(config, values.workdir, values.source or "", values.references, has_split=has_split)
    from transformer_jax.runtime.distributed import is_first, join_processes, require_same
    from transformer_jax.tasks.saved_evaluations import (
        ScoredCheckpoint,
        ensemble_suffix,
        evaluation_stem,
        save_evaluation,
        stem_of_text,
    )

    folder = _results(values)
    if values.distributed:
        join_processes()
        # JAX's handler waits for the update after which to stop.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        same = with_addresses(repr((chosen, values.split, values.average)))
        require_same(same, "--distributed: the processes were started with different flags; use the same command")
    if text is None:
        task_class(config.task).require_split(config, values.split)
    trained = open_runs(chosen, values.average)
    if text is None:
        found = trained.evaluate(values.split)
    else:
        found = trained.task.evaluate_text(trained.params, text, Path(values.source).name)
    scored = ScoredCheckpoint(found, trained.steps[-1], len(trained.steps), trained.members)
    if not is_first():
        return 0

    ensemble, own = ensemble_suffix(values.workdir, scored.ensemble), load_run_config(values.workdir)
    name = evaluation_stem(found.split, scored.step, scored.averaged, own, config, ensemble)
    stem = stem_of_text(folder / name, scored.to_json())
    saved = save_evaluation(stem, scored)
    if values.json:
        print(json.dumps(saved.report, ensure_ascii=False))
        return 0
    if values.examples and found.outputs is not None:
        print(found.examples(values.examples))
    averaged = f", average of {scored.averaged} checkpoints" * (scored.averaged > 1)
    lines = [
        text_table(found.rows()),
        "",
        f"run directory {values.workdir}",
        f"  checkpoint   {scored.step:,}{averaged}",
    ]
    lines += [f"  ensemble     with {member}{averaged}" for member in scored.ensemble]
    lines += [f"  scores       {stem}.json"]
    if found.outputs is not None:
        lines.append(f"  translations {stem}.txt")
    lines += (f"  {command}" for command in commands_to_try(config, values.workdir, scored.ensemble))
    print(with_addresses("\n".join(lines)))
    return 0


def _results(values: flags.Values) -> Path:
    return require_writable(values.output or values.workdir, "--output" if values.output else "--workdir")


def require_watchable(values: flags.Values) -> None:
    """Raises ConfigError at flags that do not go with --watch."""
    for name in ("checkpoint", "average", "ensemble", "distributed", "json", "examples"):
        if values[name].present:
            problem = "--watch scores each checkpoint alone, in one process, and keeps a log; leave it out"
            raise ConfigError(f"--{name}: {problem}")
    if values.source or values.references:
        raise ConfigError("--source: --watch scores a split of the data; leave it out, or name the text with data.test")


def _wait_and_watch(values: flags.Values) -> int:
    """Scores checkpoints, when the run has begun."""
    require_watchable(values)
    ended: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: ended.append(number))
    if Path(values.workdir).is_file():
        raise ConfigError(f"--workdir: {values.workdir} is a file; give the directory of a run")
    folder, is_waiting = SharedFolder(values.workdir, "--workdir"), False
    while True:
        try:
            if CONFIG_FILE in folder.names(""):
                break
        except StoreError as error:
            # Missing credentials or permissions fail at once.
            if not is_waiting:
                raise
            print(f"{error}; the store is asked again", flush=True)
        if ended:
            raise ConfigError(f"--workdir: {values.workdir}: the run has not begun: no {CONFIG_FILE} in it")
        if not is_waiting:
            print(f"{values.workdir}: no {CONFIG_FILE} yet; waiting for the run to begin", flush=True)
        is_waiting = True
        time.sleep(values.poll_seconds)
    return run_on_copies("evaluate", partial(_watch, is_over=lambda: bool(ended)), values)


def _watch(values: flags.Values, is_over: Callable[[], bool]) -> int:
    config = run_config(values)
    if config.scores_translations:
        config.evaluation.require_installed(config.data.target_language)
    from transformer_jax.runs.watch import watch
    from transformer_jax.runtime.hardware import start_jax

    run, split = RunDirectory(values.workdir), values.split if values["split"].present else "validation"
    folder = _results(values) / run.watched(split).name
    if "decoding.beam_width" in dict(flags.overrides_of(values)):
        # A stated width overrides that of validations.
        config = replace(config, training=replace(config.training, validation_beam_width=0))
    training = config.training
    if training.evaluate_every == 0 and training.num_updates // training.checkpoint_every > training.keep_last:
        print(f"the run keeps its last {training.keep_last} checkpoints only, the best or not (training.keep_last)")
    start_jax(config.data.cache_directory)

    def pause() -> bool:
        time.sleep(values.poll_seconds)
        is_last = is_over()
        # All checkpoints that were saved before the signal must be here.
        return refresh_copy(run.path) and is_last

    for line in watch(run, config, split, folder, pause=pause):
        print(with_addresses(line), flush=True)
        refresh_copy(run.path)
    scores = folder / "metrics.jsonl"
    found = f"scores: {scores}" if scores.is_file() else "no checkpoint was scored"
    print(with_addresses(f"the run has ended; {found}"))
    return 0
