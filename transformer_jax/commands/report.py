"""Compare runs: what each reached, in which settings they differ, their learning curves, the best checkpoint of each.

Example:
    transformer-jax report runs/small runs/large
    transformer-jax report sweeps/dropout/trials --output=reports/dropout --metrics=validation/bleu,train/accuracy

RUN is a run directory, or a folder with run directories in it, such as the trials of a sweep. Runs may still be in progress,
and their models may be of different kinds. The best validation score comes first. Prints the table and writes, into the
output folder, report.md, report.csv, report.html (one file to send around, the picture inside) and curves.png. Nothing is
trained or translated: for scores of a whole split run transformer-jax evaluate before, and they are in the table.
"""

from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.flag_parsing import define_arguments
from transformer_jax.config import ConfigError

if TYPE_CHECKING:
    from transformer_jax.tools.reports.run_summary import RunSummary


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_arguments(values, "RUN ...", "run directories, or folders with run directories in them")
    flags.DEFINE_string("output", "report", "folder for the report", flag_values=values)
    meaning = "what to draw against the update, separated by commas: names of metrics.jsonl"
    meaning += " (default: the metrics of the task at validations, and train/loss)"
    flags.DEFINE_list("metrics", [], meaning, flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Writes the report; 0."""
    if not values.arguments:
        raise ConfigError("RUN: give one or several run directories; --help shows an example")
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.tools.reports.run_folders import find_runs, short_names

    folders = find_runs(values.arguments)
    output = require_writable(values.output, "--output")
    from transformer_jax.tools.reports.document import to_text, write_report
    from transformer_jax.tools.reports.run_report import (
        damage,
        different_text,
        draw_run_curves,
        report_csv,
        results_table,
        run_report,
    )
    from transformer_jax.tools.reports.run_summary import summarize

    runs = [summarize(folder, name) for folder, name in zip(folders, short_names(folders), strict=True)]
    runs.sort(key=_from_best)
    curves = draw_run_curves(runs, values.metrics, output / "curves.png")
    written = write_report(output, "report", run_report(runs, curves), {"report.csv": report_csv(runs)})
    print(to_text(results_table(runs)))
    print("\n" + "\n".join([*different_text(runs), *damage(runs), *(f"  {path}" for path in written)]))
    return 0


def _from_best(run: "RunSummary") -> tuple[str, bool, float]:
    """Task by task; runs without a score come last."""
    sign = -1 if run.config.selection.direction == "maximize" else 1
    return run.config.task, run.score is None, sign * (run.score or 0.0)
