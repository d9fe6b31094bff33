import json
import signal
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
from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config
from transformer_jax.errors import StoreError
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.files.paths import in_store
from transformer_jax.files.terminal import table_width, text_table
from transformer_jax.run_directory.layout import RunDirectory

# An object that shows whether a bucket can be written.
PROBE = "evaluation.partial"


@flags.command(
    run_flags,
    ensemble_flag,
    flags.distributed,
    flags.boolean("json", False, "print JSON instead of text"),
    flags.string("split", "test", "train, validation, test, or a name in the data"),
    flags.string("source", None, "file to score instead of a split, plain, .gz or .xz"),
    flags.repeated(
        "references", [], "files of translations of --source, one for each of several references", takes_words=True
    ),
    flags.integer("examples", 5, "how many translations to print beside their references", lower_bound=0),
    flags.string("output", None, "folder for the results (default: the run directory)"),
)
def evaluate(values: flags.Values) -> int:
    """Score a trained model on a whole split: translations or bits per byte of raw text.

    Example:
        transformer-jax evaluate runs/m30k --checkpoint=last --average=5
            --config.decoding.beam_width=5
        transformer-jax evaluate --workdir=runs/a --ensemble=runs/b,runs/c:4000
        transformer-jax evaluate runs/m30k --source=news.en --references=news.de
        transformer-jax evaluate runs/m30k --config.evaluation.metrics=bleu,ter

    Prints a table and writes evaluation-SPLIT-STEP.json into the run directory, and beside it the
    translations, one a line, which are scored against raw references. Settings of decoding and of
    scores can be changed, and are then part of the name. The devices and the location of the data
    can be changed too. With --ensemble the models of several runs, of any kind, are scored as one:
    every next token has the mean of their probabilities. They must share their tokenizers.
    Decoding, devices and data come from --workdir. Outputs that reached the length limit or repeat
    are counted. Standard error tells which sources have something that the model never saw in
    training.
    """
    config = run_config(values)
    if config.scores_translations:
        config.evaluation.require_installed(config.data.target_language)
    if not values.distributed:
        return _score(values, config)
    from transformer_jax.runtime.process_group import ending_with_others

    with ending_with_others():
        return _score(values, config)


def _score(values: flags.Values, config: ExperimentConfig) -> int:
    runs = chosen_runs(values, config)
    from transformer_jax.data.corpora import require_readable

    if values.source is None and not values.references and config.data.source != "tfds":
        require_readable(config, values.split)
    # This imports JAX.
    from transformer_jax.runtime.distributed import is_first, require_same
    from transformer_jax.runtime.process_group import join_processes
    from transformer_jax.tasks.saved_evaluations import (
        ScoredCheckpoint,
        ensemble_suffix,
        evaluation_stem,
        save_evaluation,
        stem_of_text,
    )
    from transformer_jax.tasks.task import task_class
    from transformer_jax.tasks.texts import open_text_or_none

    folder = _results(values)
    if values.distributed:
        join_processes()
        # JAX's handler waits for the update after which to stop.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        same = repr((runs, values.split, values.average))
        require_same(same, "--distributed", "the processes were started with different flags", "use the same command")
    has_split = "split" in values.present
    # This starts JAX, after the processes have joined.
    text = open_text_or_none(config, values.workdir, values.source, values.references, has_split=has_split)
    if text is None:
        task_class(config.task).require_split(config, values.split)
    trained = open_runs(runs, values.average)
    if text is None:
        evaluation = trained.evaluate(values.split)
    else:
        evaluation = trained.task.evaluate_text(trained.params, text, Path(values.source).name)
    scored = ScoredCheckpoint(evaluation, trained.steps[-1], len(trained.steps), trained.members)
    if not is_first():
        return 0
    trained.remarks_on(evaluation, text, values.source or "").tell()
    ensemble, saved_config = ensemble_suffix(values.workdir, scored.ensemble), load_run_config(values.workdir)
    name = evaluation_stem(evaluation.split, scored.step, scored.averaged, saved_config, config, ensemble)
    stem = stem_of_text(folder / name, scored.to_json())
    saved = save_evaluation(stem, scored)
    if values.json:
        print(json.dumps(saved.report, ensure_ascii=False))
        return 0
    if values.examples and evaluation.outputs is not None:
        print(evaluation.examples(values.examples))
    averaged = f", average of {scored.averaged} checkpoints" * (scored.averaged > 1)
    lines = [
        text_table(evaluation.rows(), columns=table_width()),
        "",
        f"run directory {values.workdir}",
        f"  checkpoint   {scored.step:,}{averaged}",
        *(f"  ensemble     with {member}{averaged}" for member in scored.ensemble),
        f"  scores       {stem}.json",
        *([f"  translations {stem}.txt"] if evaluation.outputs is not None else []),
        *(f"  {command}" for command in commands_to_try(config, values.workdir, scored.ensemble)),
    ]
    print("\n".join(lines))
    return 0


def _results(values: flags.Values) -> Path:
    if values.output:
        return require_writable(values.output, "--output")
    folder = require_writable(RunDirectory(values.workdir).path, "--workdir")
    if in_store(folder):
        # Before hours of decoding.
        try:
            (folder / PROBE).write_text("")
            (folder / PROBE).unlink(missing_ok=True)
        except StoreError as error:
            if error.is_outage:
                raise
            raise ConfigError(error, remedy="the scores cannot be written there: give --output=FOLDER") from None
    return folder
