"""Comparison of runs: ``report`` and ``compare``."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import CHECKPOINT_MEANING, run_config
from transformer_jax.config import ConfigError
from transformer_jax.config.json_text import printable
from transformer_jax.config.languages import require_tokenizer
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.open_copies import with_addresses
from transformer_jax.tools.reports.run_folders import find_runs, run_of, short_names

if TYPE_CHECKING:
    from transformer_jax.tools.reports.run_summary import RunSummary


@flags.command(
    flags.arguments("RUN ...", "run directories, or folders with run directories in them"),
    flags.string("output", "report", "folder for the report"),
    flags.strings("metrics", [], "metrics of metrics.jsonl to draw (default: those of validations, and train/loss)"),
    flags.boolean("fit", False, "fit the loss as a function of parameters and tokens, and predict the largest run"),
)
def report(values: flags.Values) -> int:
    """Compare runs: scores, settings that differ, learning curves, the best checkpoint of each.

    Example:
        transformer-jax report runs/small runs/large
        transformer-jax report sweeps/dropout/trials --output=reports/dropout --metrics=validation/bleu,train/accuracy

    RUN is a run directory, or a folder with run directories in it, such as the trials of a sweep. Runs may still be in
    progress, and of different kinds. --fit adds a scaling law of the finished runs (Hoffmann et al. 2022) without the one of
    most FLOPs, whose loss it predicts. Prints the table and writes report.md, report.csv, report.html (a single file with the
    picture) and curves.png into the output folder.
    """
    if not values.arguments:
        raise ConfigError("RUN: give one or several run directories; --help shows an example")
    folders = find_runs(values.arguments)
    output = require_writable(values.output, "--output")
    from transformer_jax.tools.reports import run_report
    from transformer_jax.tools.reports.document import Section, section_text, to_text, write_report
    from transformer_jax.tools.reports.run_summary import summarize

    runs = [summarize(folder, name) for folder, name in zip(folders, short_names(folders), strict=True)]
    runs.sort(key=_from_best)
    scaling: list[Section] = []
    if values.fit:
        from transformer_jax.tools.reports.scaling_law import scaling_section

        scaling.append(scaling_section(runs, output / "scaling.png"))
    curves = run_report.draw_run_curves(runs, values.metrics, output / "curves.png")
    tables = {"report.csv": run_report.report_csv(runs)}
    document = run_report.run_report(runs, curves)
    document = replace(document, sections=(*scaling, *document.sections))
    written = write_report(output, "report", document, tables)
    print("\n\n".join(to_text(table) for table in run_report.results_tables(runs)))
    for section in scaling:
        print("\n" + section_text(section))
    warnings = [f"WARNING: {sign}" for sign in run_report.signs_of_runs(runs)]
    remarks = [*warnings, *run_report.different_text(runs), *run_report.damage(runs)]
    print(with_addresses("\n" + "\n".join([*map(printable, remarks), *(f"  {path}" for path in written)])))
    return 0


def _from_best(run: "RunSummary") -> tuple[str, bool, float]:
    """Sort key: by task, the best score first; runs without a score come last."""
    sign = -1 if run.config.selection.direction == "maximize" else 1
    return run.config.task, run.score is None, sign * (run.score or 0.0)


@flags.command(
    flags.arguments("A B", "two run directories, or two evaluation-*.txt (or .json) in run directories"),
    flags.string("split", "test", "of runs: train, validation, test, or a name that the data has; files know theirs"),
    flags.string("checkpoint", "best", f"of runs: {CHECKPOINT_MEANING}"),
    flags.integer("examples", 10, "number of sentences to show in favor of each", lower_bound=0),
    flags.integer("resamples", 1000, "number of bootstrap resamples", lower_bound=100),
    flags.string("output", "compare", "folder for the report"),
    flags.overrides,
)
def compare(values: flags.Values) -> int:
    """Test whether one run translates, or parses, a split significantly better than another.

    Example:
        transformer-jax compare runs/small runs/large --split=test
        transformer-jax compare runs/small/evaluation-test-900.txt runs/small/evaluation-test-1800.txt

    A and B are run directories, or files that transformer-jax evaluate wrote into them. Translations by evaluate are reused; a
    run without them is evaluated now. Prints BLEU (with the tokenizer of both runs, or --config.evaluation.bleu_tokenizer) and
    chrF, or F1 of parsers, with 95 % confidence intervals, and sacreBLEU's p (--paired-ar): the probability of a difference at
    least as large between equally good systems. Then prints the sentences that differ most. Writes compare.md, .html and
    .csv, and compare-sentences.csv (every sentence) into the output folder. SACREBLEU_SEED is the seed of the resampling.
    """
    paths = _two_paths(values)
    from transformer_jax.tasks.task import task_class

    configs = [run_config(values, workdir=str(run_of(path))) for path in paths]
    paired, _ = (task_class(config.task).paired_scores(config) for config in configs)
    tokenizer, *others = dict.fromkeys(config.evaluation.tokenizer(config.data.target_language) for config in configs)
    if others:
        problem = f"A is scored with {tokenizer}, B with {others[0]}; state one, for example {tokenizer}"
        raise ConfigError(f"--config.evaluation.bleu_tokenizer: {problem}")
    require_tokenizer(tokenizer, "evaluation.bleu_tokenizer")
    output = require_writable(values.output, "--output")
    from transformer_jax.tools.reports import comparison, translated_split
    from transformer_jax.tools.reports.document import section_text, write_report

    chosen = [
        translated_split.choose_file(path, config)
        if path.is_file()
        else translated_split.choose_run(path, config, values.split, values.checkpoint)
        for path, config in zip(paths, configs, strict=True)
    ]
    translated_split.require_same_references(*chosen)
    sides = []
    for each in chosen:
        if (saved := translated_split.saved_translations(each)) is None:
            remark = f"{each.stem.parent}: translating {each.split} with checkpoint {each.step} ..."
            print(with_addresses(remark), file=sys.stderr, flush=True)
            saved = translated_split.translate_now(each)
        sides.append(saved)
    names = short_names(paths)
    found = comparison.compare_sides((names[0], names[1]), (sides[0], sides[1]), paired, values.resamples)
    tables = {"compare.csv": comparison.scores_csv(found), "compare-sentences.csv": comparison.sentences_csv(found)}
    written = write_report(output, "compare", comparison.comparison_report(found, values.examples), tables)
    for section in comparison.examples_sections(found, values.examples) if values.examples else ():
        print(section_text(section) + "\n")
    print(section_text(comparison.scores_section(found)))
    print("\n" + "\n".join(f"  {path}" for path in written))
    return 0


def _two_paths(values: flags.Values) -> list[Path]:
    """Paths of A and B; raises ConfigError unless there are two, and where decoding settings are given for files."""
    paths = [Path(argument).expanduser().resolve() for argument in values.arguments]
    if len(paths) != 2:
        raise ConfigError(f"A B: give two runs to compare, not {len(paths)}; --help shows an example")
    if paths[0] == paths[1]:
        raise ConfigError(f"A B: both are {paths[0]}; give two different ones")
    searched = [key for key, _ in flags.overrides_of(values) if key.startswith("decoding.")]
    files = [path for path in paths if path.is_file()]
    if searched and files:
        problem = f"{files[0]} was translated with other settings; give its run directory instead"
        raise ConfigError(f"--config.{searched[0]}: {problem}")
    return paths
