"""One command for a table of the paper: trains what is not trained yet, measures what has ended,
writes the report."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from effects import chance_apart
from row_results import RowResult, row_results
from trials import finished_trials

from transformer_jax.__main__ import main as transformer_jax
from transformer_jax.config import ConfigError, DataError
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.runtime.hardware import start_jax
from transformer_jax.tools.study.document import Document, section_text, write_report
from transformer_jax.tools.study.sweeps import Sweep, load_sweep

OVERRIDE = "--config."
SOME_FAILED, USER_ERROR = 1, 2
RowOverrides = Mapping[str, Mapping[str, str | int | float | bool]]


class Measured(NamedTuple):
    """What a report is made of: the flags, the rows with their overrides, results by row, and who
    is missing."""

    flags: argparse.Namespace
    rows: RowOverrides
    results: dict[str, RowResult]
    seeds: int
    signatures: list[str]
    commits: list[str]
    missing: list[str]


Report = Callable[[Measured], tuple[Document, str]]
"""Makes the document and the CSV; may write pictures to ``flags.output``."""


def run_table(
    folder: Path, words: str, split: str, average: Callable[[str, str], int], report: Report, argv: Sequence[str]
) -> int:
    """The whole command, of the table whose sweep file is in ``folder``; its exit status, or the
    one of a sweep that failed.

    ``split`` is what is translated; ``average(scale, row)`` of how many checkpoints the parameters
    are the mean.
    """
    flags = read_flags(words, folder / "results", argv)
    try:
        sweep = load_sweep(f"{folder / 'sweep.py'}:{flags.scale}", overrides(flags), chosen_rows(flags))
        require_writable(flags.output, "--output")
        status = 0 if flags.table_only else transformer_jax(sweep_command(folder, flags))
        if status not in (0, SOME_FAILED):
            return status
        measured = measure(flags, sweep, split, average)
        document, csv = report(measured)
        written = write_report(flags.output, "table", document, {"table.csv": csv})
    except (ConfigError, DataError) as error:
        print(error, file=sys.stderr)
        return USER_ERROR
    print("\n\n".join(section_text(section) for section in document.sections))
    print("\n" + "\n".join(f"  {file}" for file in written))
    return status


def read_flags(words: str, output: Path, argv: Sequence[str]) -> argparse.Namespace:
    """The command line; whatever else begins with ``--`` is a flag of the sweep."""
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--scale", choices=("small", "paper"), required=True, help="small: two cores; paper: WMT 2014")
    parser.add_argument("--data", default="", help="folder with the data (small), or of tfds (paper; default: its own)")
    parser.add_argument(
        "--workdir", type=Path, required=True, help="folder of the sweep; the same command resumes in it"
    )
    parser.add_argument("--rows", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--workers", type=int, default=0, help="workers here (default: one a GPU, else one)")
    parser.add_argument("--table_only", action="store_true", help="train nothing: the table of what has ended")
    ceiling = "TFLOP/s that matrix products reach on one device of a trial (benchmarks/matmul_ceiling.py); gives MFU"
    parser.add_argument("--ceiling", type=float, default=0.0, help=ceiling)
    parser.add_argument("--output", type=Path, default=output, help="folder for table.md, .html, .csv and pictures")
    flags, rest = parser.parse_known_args(argv)
    strangers = [each for each in rest if not each.startswith("--") or (each.startswith(OVERRIDE) and "=" not in each)]
    if strangers:
        parser.error(f"{strangers[0]}: write --config.KEY=VALUE, or --FLAG=VALUE of transformer-jax sweep")
    if flags.scale == "small" and not flags.data:
        parser.error("--data: needed with --scale=small: the folder with the text files")
    flags.of_sweep = rest
    return flags


def chosen_rows(flags: argparse.Namespace) -> list[str]:
    """The rows that are named; none means all."""
    return [name.strip() for name in flags.rows.split(",") if name.strip()]


def overrides(flags: argparse.Namespace) -> list[tuple[str, str]]:
    """Settings of all trials: where the data lie, and ``--config.KEY=VALUE``."""
    given = [each.removeprefix(OVERRIDE).split("=", 1) for each in flags.of_sweep if each.startswith(OVERRIDE)]
    data = [("data.directory", flags.data)] if flags.data else []
    return [*data, *((key, value) for key, value in given)]


def sweep_command(folder: Path, flags: argparse.Namespace) -> list[str]:
    """What trains all trials, or goes on with them."""
    command = ["sweep", f"--sweep={folder / 'sweep.py'}:{flags.scale}", f"--workdir={flags.workdir}"]
    command += [f"--rows={','.join(chosen_rows(flags))}"] if flags.rows else []
    command += [f"--workers={flags.workers}"] if flags.workers else []
    command += [f"{OVERRIDE}{key}={value}" for key, value in overrides(flags)]
    return [*command, *(each for each in flags.of_sweep if not each.startswith(OVERRIDE))]


def measure(flags: argparse.Namespace, sweep: Sweep, split: str, average: Callable[[str, str], int]) -> Measured:
    """Raises DataError when nothing has ended yet, or a folder holds another trial."""
    start_jax(sweep.settings(sweep.points()[0]).data.cache_directory)
    trials, missing = finished_trials(sweep, flags.workdir, split, lambda row: average(flags.scale, row))
    if not trials:
        raise DataError(f"--workdir: no trial of the sweep has ended in {flags.workdir} yet")
    return Measured(
        flags=flags,
        rows=sweep.rows,
        results=row_results(trials),
        seeds=max(len(sweep.seeds), 1),
        signatures=sorted({trial.signature for trial in trials}),
        commits=sorted({trial.commit for trial in trials}),
        missing=missing,
    )


def how_measured(measured: Measured, average: str) -> str:
    """What every table of this kind has to say below it."""
    seeds, ceiling = measured.seeds, measured.flags.ceiling
    parts = [
        "Perplexity is per subword, the mean over seeds with the least and the most."
        if seeds > 1
        else "One seed a row, so the spread of seeds is not known.",
        f"BLEU is sacreBLEU's on raw references ({', '.join(measured.signatures)}), the mean over seeds; in brackets 95 % of "
        "1,000 bootstrap resamples of the sentences (Koehn 2004), in each of which the mean over seeds is scored: what "
        f"other sentences would change, not other seeds. Both are of {average}, beam search as in the paper.",
        "Train FLOPs are those of the matrix products of all updates, forward and backward, padding included, counted in the "
        "program; steps/s leaves out compilation, waiting for data, validations and checkpoints.",
    ]
    if ceiling:
        parts.append(f"MFU is their rate over {ceiling:g} TFLOP/s a device, which matrix products alone reach.")
    if measured.missing:
        parts.append(f"Not there yet: {'; '.join(measured.missing)}.")
    return " ".join([*parts, f"Commit {', '.join(measured.commits) or 'unknown'}."])


def how_to_read_effects(seeds: int) -> str:
    """What the question mark means."""
    if seeds < 2:
        return "A question mark, here everywhere: one seed cannot tell an effect from chance."
    apart = f"{chance_apart(seeds):.0%}"
    return (
        "A question mark: the seeds of the row and those of the base mix, so chance explains the difference. Where they do not "
        f"it still may: of two models that are equally good, {seeds} seeds each lie apart in {apart} of all cases."
    )
