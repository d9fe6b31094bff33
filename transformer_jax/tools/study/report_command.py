"""Comparison of runs: ``report`` and ``compare``."""

from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, run_config
from transformer_jax.config import ConfigError
from transformer_jax.config.evaluation import require_tokenizer
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.files.paths import as_path
from transformer_jax.run_directory.layout import short_names


@flags.command(
    flags.arguments("RUN ...", "run directories, or folders with run directories in them"),
    flags.string("output", "report", "folder for the report"),
    flags.strings("metrics", [], "metrics of metrics.jsonl to draw (default: those of validations, and train/loss)"),
)
def report(values: flags.Values) -> int:
    """Compare runs: scores, settings that differ, learning curves, best checkpoints.

    Example:
        transformer-jax report runs/small runs/large
        transformer-jax report sweeps/dropout/trials --output=reports/dropout --metrics=train/loss

    RUN is a run directory, or a folder with run directories in it, such as the trials of a sweep.
    Runs may still be in progress, and of different kinds. Prints the tables and writes report.md,
    report.csv, report.html (a single file with the pictures), curves.png and attention.png into the
    output folder. Translations that evaluate saved are shown for three sentences, with the
    attention of the best run to one.
    """
    if not values.arguments:
        raise ConfigError("RUN", "give one or several run directories", "--help shows an example")
    # This imports JAX.
    from transformer_jax.tools.study.document import section_text, write_report
    from transformer_jax.tools.study.run_summary import find_runs, summarize
    from transformer_jax.tools.study.runs_table import draw_run_curves, from_best, report_on_runs
    from transformer_jax.tools.study.translation_comparison import sentences_of

    folders = find_runs(values.arguments)
    output = require_writable(values.output, "--output")
    runs = sorted(map(summarize, folders, short_names(folders)), key=from_best)
    curves = draw_run_curves(runs, values.metrics, output / "curves.png")
    document, csv, summary = report_on_runs(runs, curves, sentences_of(runs, output / "attention.png"))
    written = write_report(output, "report", document, {"report.csv": csv})
    print(section_text(summary) + "\n\n" + "\n".join(f"  {path}" for path in written))
    return 0


@flags.command(
    flags.arguments("A B", "two run directories, or two evaluation-*.txt (or .json) in run directories"),
    flags.string("split", "test", "of runs: train, validation, test, or a name in the data"),
    flags.string("checkpoint", "best", f"of runs: {CHECKPOINT_MEANING}"),
    flags.integer("examples", 3, "number of sentences to show in favor of A, and of B", lower_bound=0),
    flags.integer("resamples", 1000, "number of bootstrap resamples", lower_bound=100),
    flags.string("output", "compare", "folder for the report"),
    flags.overrides,
)
def compare(values: flags.Values) -> int:
    """Test whether one run translates, or parses, a split significantly better than another.

    Example:
        transformer-jax compare runs/small runs/large --split=test
        transformer-jax compare runs/small/evaluation-test-90.txt runs/small/evaluation-test-95.txt

    A and B are run directories, or files that transformer-jax evaluate wrote into them.
    Translations by evaluate are reused. A run without them is evaluated now. Prints BLEU (with the
    tokenizer of both runs, or --config.evaluation.bleu_tokenizer) and chrF, or F1 of parsers, with
    95 % confidence intervals, and sacreBLEU's p (--paired-ar): the probability of a difference at
    least as large between equally good systems. Then prints the sentences that differ most. Writes
    compare.md, .html and .csv, and compare-sentences.csv (every sentence) into the output folder.
    SACREBLEU_SEED is the seed of the resampling.
    """
    paths = _two_paths(values)
    from transformer_jax.tools.study import translation_comparison as comparison
    from transformer_jax.tools.study.run_summary import run_of

    configs = [run_config(values, workdir=str(run_of(path))) for path in paths]
    paired, _ = (comparison.task_that_scores_pairs(config).paired_scores(config) for config in configs)
    tokenizer, *others = dict.fromkeys(config.evaluation.tokenizer(config.data.target_language) for config in configs)
    if others:
        problem = f"A is scored with {tokenizer}, B with {others[0]}"
        raise ConfigError("--config.evaluation.bleu_tokenizer", problem, f"state one, for example {tokenizer}")
    require_tokenizer(tokenizer, "evaluation.bleu_tokenizer")
    output = require_writable(values.output, "--output")
    from transformer_jax.tools.study.document import section_text, write_report

    sides = [
        comparison.choose_file(path, config)
        if path.is_file()
        else comparison.choose_run(path, config, values.split, values.checkpoint)
        for path, config in zip(paths, configs, strict=True)
    ]
    comparison.require_same_references(*sides)
    names, sides = short_names(paths), [comparison.translated(side) for side in sides]
    document, tables = comparison.comparison_report(names, sides, paired, values.resamples, values.examples)
    written = write_report(output, "compare", document, tables)
    scores, *examples, _, _ = document.sections
    for section in (scores, *(examples if values.examples else ())):
        print(section_text(section) + "\n")
    print("\n".join(f"  {path}" for path in written))
    return 0


def _two_paths(values: flags.Values) -> list[Path]:
    """Return the paths of A and B. Files take no decoding settings."""
    paths = [as_path(argument) for argument in values.arguments]
    if len(paths) != 2:
        raise ConfigError("A B", f"give two runs to compare, not {len(paths)}", "--help shows an example")
    if paths[0].resolve() == paths[1].resolve():
        raise ConfigError("A B", f"both are {paths[0]}", "give two different ones")
    searched = [key for key, _ in flags.overrides_of(values) if key.startswith("decoding.")]
    files = [path for path in paths if path.is_file()]
    if searched and files:
        problem = f"{files[0]} was translated with other settings; give its run directory instead"
        raise ConfigError(f"--config.{searched[0]}", problem)
    return paths
