"""The results of a duel: runs, noise floor of the base, tests of ideas, and the report."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transformer_jax.config import Metric, resolve
from transformer_jax.config.tasks import LOSSES
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.run_directory.layout import RunDirectory, read_starts
from transformer_jax.runs.goodput import TRAINING, read_goodput
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import HAIRLINE, INK, LINE_COLORS, font
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.study.contenders import BASE
from transformer_jax.tools.study.document import Cell, Document, Picture, Section, Table, to_csv, to_latex, write_report
from transformer_jax.tools.study.duel_plan import ROUNDS, Plan, Planned
from transformer_jax.tools.study.run_summary import validations
from transformer_jax.tools.study.seed_statistics import (
    LEVEL,
    MOST_SEEDS,
    PairedTest,
    detectable,
    deviation_range,
    holm,
    paired_test,
    seeds_needed,
    verdict,
)
from transformer_jax.tools.study.sweeps import ROW, SEED, TrialRow

LOSS = LOSSES[0].key
METHOD = (
    "Every idea has the seeds of the base: the same order of the data, and the same initial values if shapes agree. "
    "Scores are means over seeds ± standard deviations, after the last update. A difference is the idea less the base, seed by "
    "seed. p: how likely a difference at least as large is if the idea changes nothing (paired t test), adjusted by Holm for "
    "all ideas. An idea helps or hurts if p is below 0.05. In brackets is the 95 % interval of the difference by Student's t, "
    "widened (Bonferroni) for as many ideas as Holm's method corrects this p for: it excludes 0 if p is below 0.05. Effect: "
    "the difference over the noise floor, which is the standard deviation of the base between seeds. Failed runs, which "
    "diverged or ended by an error, are counted, and leave the pair of their seed out of the test. The loss is not comparable "
    "if an idea changes it as a measure, such as a loss per token with another tokenizer."
)
BUDGETS = {
    "flops": "The runs of an idea have the FLOPs of the base's runs: the more an update has, the fewer updates.",
    "time": f"The runs of an idea have the time in updates of the base's runs, measured by pilots in turn (best of {ROUNDS}).",
    "updates": "All runs have the same number of updates. An idea may use more operations and parameters.",
}
COUNTS = (
    "FLOPs are of matrix products and convolutions: forward, backward and in the optimizer, without recomputation, on the "
    "batches of the run. Memory: the state and the temporary arrays of the compiled update. "
)
TIMES = (
    "Milliseconds are of the fastest run, with the wait for data, without validations and start-up. Load: processes that "
    "wanted a core during the pilot, per core. Above 1 they waited for each other."
)
# Pilots whose FLOPs differ by less than this factor should take times
NEAR_FLOPS = 1.02
# that differ by less than this factor. Otherwise other programs slowed some of them.
NEAR_TIMES = 1.5
# A metric far from its plateau makes this share of its way in the last quarter of the budget,
LATE_SHARE = 0.1
# or the runs have less than this share of the updates of the recipe.
SHORT_SHARE = 0.5
# Conditions of runs, by their keys in run.json.
ORIGIN = {
    **{"transformer_jax": "version", "commit": "git_commit", "devices": "devices", "cores": "cpu_count"},
    **{"host": "host", "Python": "python", "packages": "packages"},
}
PICTURE_FILES = (".png", ".svg", ".pdf")
BETTER = LINE_COLORS[0]
WORSE = LINE_COLORS[1]
UNCERTAIN = LINE_COLORS[5]
# Inches of the picture of differences: panels, rows, margins, and the width of a letter.
PANEL_WIDTH = 3.6
PANEL_GAP = 0.35
ROW_HEIGHT = 0.34
TOP = 0.9
BOTTOM = 0.62
LETTER = 0.085


class FinishedRun(NamedTuple):
    """A run that ended, with the ``error`` if it failed.

    ``validations`` are by update, ``seconds`` of an update, ``origin`` is the last start in
    ``run.json``.
    """

    seed: int
    folder: str
    error: str
    validations: Mapping[int, Mapping[str, float]]
    seconds: float | None
    origin: Mapping[str, Any] = {}


class Difference(NamedTuple):
    """The test of an idea, p adjusted over all ideas, and the differences seed by seed."""

    test: PairedTest
    adjusted: float
    dots: Sequence[float] = ()


class Result(NamedTuple):
    """A contender, its runs that ended, and the tests of an idea against the base.

    Args:
        is_loss_comparable: False if the idea changes the loss as a measure, which then has no test.
        tests: by key, of the metric of the duel and of the loss.
        effect: the mean difference of the metric over the noise floor.
    """

    planned: Planned
    runs: Sequence[FinishedRun]
    is_loss_comparable: bool = True
    tests: Mapping[str, Difference] = {}
    effect: float | None = None
    verdict: str = ""

    @property
    def name(self) -> str:
        return self.planned.contender.name

    @property
    def sound(self) -> dict[int, FinishedRun]:
        """The runs that did not fail, by seed."""
        return {run.seed: run for run in self.runs if not run.error}

    @property
    def failures(self) -> int:
        return len(self.runs) - len(self.sound)

    @property
    def seconds(self) -> float | None:
        """Seconds of an update in the fastest run."""
        return min((run.seconds for run in self.sound.values() if run.seconds is not None), default=None)

    def final(self, key: str) -> dict[int, float]:
        """Return the last validations of the sound runs, by seed."""
        return {seed: run.validations[max(run.validations)][key] for seed, run in self.sound.items()}

    def deviation(self, key: str) -> float | None:
        """Return the standard deviation of final values, of a base its noise floor."""
        finals = self.final(key).values()
        return stdev(finals) if len(finals) > 1 else None

    def differences(self, base: "Result", key: str) -> list[float]:
        """Return the differences of final values, seed by seed."""
        ours, theirs = self.final(key), base.final(key)
        return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]

    def curve(self, key: str) -> dict[int, list[float]]:
        """Return the values of all sound runs by update."""
        runs = list(self.sound.values())
        steps = sorted(set.intersection(*(set(run.validations) for run in runs))) if runs else []
        return {step: [run.validations[step][key] for run in runs] for step in steps}


def finished_run(trial: TrialRow, keys: Iterable[str]) -> FinishedRun:
    """Return a trial that ended. Without finite values of ``keys`` at its end it failed."""
    if not trial.folder:
        return FinishedRun(int(trial.point[SEED]), "", trial.error or "it has no run", {}, None, {})
    run = RunDirectory(trial.folder)
    by_update = validations(run.metrics) if run.metrics.is_file() else {}
    complete = {step: values for step, values in by_update.items() if all(key in values for key in keys)}
    is_measured = bool(by_update) and max(by_update) in complete
    error = trial.error or ("" if is_measured and trial.state == "complete" else "no finite value at its end")
    seconds = None
    if by_update and (spent := read_goodput(run.goodput)):
        seconds = sum(spent["seconds"][kind] for kind in TRAINING) / max(by_update)
    starts = read_starts(run.run_record)
    return FinishedRun(int(trial.point[SEED]), trial.folder, error, complete, seconds, starts[-1] if starts else {})


def results_of(plan: Plan, metric: Metric, trials: Sequence[TrialRow]) -> list[Result]:
    """Return the results of the contenders that have a run, the base first."""
    keys = measures(metric)
    runs: dict[str, list[FinishedRun]] = {name: [] for name in plan.planned}
    for trial in sorted(trials, key=lambda row: int(row.point[SEED])):
        # Another command may have planned more.
        if trial.has_ended and trial.point.get(ROW) in runs:
            runs[str(trial.point[ROW])].append(finished_run(trial, keys))
    if not runs.get(BASE):
        return []
    losses = [measure for measure in plan.config_of(plan.planned[BASE].contender).metrics if measure.key == LOSS]
    base, *ideas = (
        Result(planned, runs[name], not any(loss.changed_by(planned.contender.settings) for loss in losses))
        for name, planned in sorted(plan.planned.items(), key=lambda item: item[0] != BASE)
        if runs[name]
    )
    tests: dict[str, dict[str, Difference]] = {idea.name: {} for idea in ideas}
    for key in keys:
        dots = {idea.name: idea.differences(base, key) for idea in ideas if idea.is_loss_comparable or key != LOSS}
        p_values = {name: test.p for name, pairs in dots.items() if (test := paired_test(pairs))}
        # An idea without a test, or without an ended run, counts among the tests too.
        waiting = [1.0] * (plan.num_ideas - len(p_values))
        for name, (p, number) in zip(p_values, holm([*p_values.values(), *waiting]), strict=False):
            if test := paired_test(dots[name], number):
                tests[name][key] = Difference(test, p, dots[name])
    return [base, *(_judged(idea._replace(tests=tests[idea.name]), base, metric) for idea in ideas)]


def measures(metric: Metric) -> dict[str, Metric]:
    """Return the metric of a duel and the loss, by key."""
    return {measure.key: measure for measure in (metric, LOSSES[0])}


def _judged(idea: Result, base: Result, metric: Metric) -> Result:
    test, adjusted, _ = idea.tests.get(metric.key, (None, 1.0, ()))
    floor, failing = base.deviation(metric.key), [result for result in (idea, base) if result.failures]
    failed = [f"{result.failures} of {len(result.runs)} runs of {result.name} failed" for result in failing]
    words = verdict(test, adjusted, metric, " and ".join(failed))
    return idea._replace(effect=test.mean / floor if test and floor else None, verdict=words)


def power_statement(plan: Plan, results: Sequence[Result], seeds: int, metric: Metric, effect: float) -> str:
    """Return a line on the difference that ``seeds`` can show, and the seeds that ``effect`` needs.

    An ``effect`` of 0 stands for the noise floor.

    The standard deviation of differences, and the range that its 95 % interval gives, is the root
    mean square over the ideas tested so far. Before a test it assumes independent runs.
    """
    # A test uses all seeds that an idea has in the folder.
    seeds = max(seeds, min((len(result.runs) for result in results[1:]), default=0))
    floor = results[0].deviation(metric.key) if results else None
    if floor is None:
        return "Power: the noise floor is not known yet. It is measured on runs of the base, before the ideas' runs."
    ideas, base_seeds = plan.num_ideas, len(results[0].sound)
    tests = [result.tests[metric.key].test for result in results if metric.key in result.tests]
    if tests := [test for test in tests if test.deviation]:
        degrees = sum(test.pairs - 1 for test in tests)
        deviation = math.sqrt(sum((test.pairs - 1) * test.deviation**2 for test in tests) / degrees)
        source = f"measured on {len(tests)} {'idea' if len(tests) == 1 else 'ideas'}"
    else:
        degrees, deviation = base_seeds - 1, math.sqrt(2) * floor
        source = "of runs that share nothing, from the base's runs"
    if not deviation:
        return f"Power: the base has the same {metric.label} with all of {base_seeds} seeds: there is no noise."
    spreads = deviation, *deviation_range(deviation, degrees)
    least = [metric.text(detectable(spread, seeds, ideas)) for spread in spreads]
    needed = [seeds_needed(effect or floor, spread, ideas) for spread in spreads]
    numbers = [f"more than {MOST_SEEDS:,}" if number is None else f"{number:,}" for number in needed]
    low, high = (metric.text(spread) for spread in spreads[1:])
    return (
        f"Power: the noise floor, the standard deviation of the base over {base_seeds} seeds, is {metric.text(floor)} "
        f"{metric.label}. Differences from the base have the standard deviation {metric.text(deviation)} between seeds (95 % "
        f"interval {low} to {high}; {source}). With it, {seeds} seeds and {ideas} {'idea' if ideas == 1 else 'ideas'} find a "
        f"difference of {least[0]} ({least[1]} to {least[2]}) with probability 0.8. To find "
        f"{metric.text(effect) if effect else 'a noise floor'}, another duel needs {numbers[0]} seeds ({numbers[1]} to "
        f"{numbers[2]}). Seeds added after a look at these results make false alarms more frequent."
    )


def plateau_warning(plan: Plan, base: Result, metric: Metric) -> str:
    """Return a warning if the base is far from its plateau, else "".

    Its metric or loss improves much in the last quarter of the budget, or its runs are much shorter
    than the recipe's. A score may stand still near 0 while the loss falls, and a learning rate that
    decays ends both early.
    """
    for key, measure in measures(metric).items():
        curve = {step: fmean(values) for step, values in base.curve(key).items()}
        if len(curve) < 4:
            continue
        first, *_, last = curve.values()
        early = curve[max(step for step in curve if step <= 0.75 * max(curve) or step == min(curve))]
        least_gain = max(LATE_SHARE * abs(last - first), base.deviation(key) or 0.0)
        if measure.is_better(last, early) and abs(last - early) > least_gain:
            return (
                f"WARNING: far from its plateau: in the last quarter of the budget {measure.label} of the base went from "
                f"{measure.text(early)} to {measure.text(last)}. The verdicts say which idea is ahead at this budget. A "
                f"longer one may reverse them."
            )
    overrides = [(key, text) for key, text in plan.overrides if key != "training.num_updates"]
    of_recipe = resolve(plan.recipe, overrides).training.num_updates
    if base.planned.updates >= SHORT_SHARE * of_recipe:
        return ""
    return (
        f"WARNING: far from its plateau: a run of the base has {base.planned.updates:,} updates, and one of the recipe "
        f"{of_recipe:,}. A longer budget may reverse the verdicts."
    )


def disagreeing_pilots(results: Sequence[Result]) -> str:
    """Return a sentence on pilots with equal FLOPs that took different times, else ""."""
    for pair in combinations(results, 2):
        one, other = (result.planned.cost for result in pair)
        (few, many), (short, long) = sorted((one.flops, other.flops)), sorted((one.seconds, other.seconds))
        if few > 0 and many <= NEAR_FLOPS * few and long > NEAR_TIMES * short:
            return (
                f"No times: the pilots of {pair[0].name} and {pair[1].name}, with equal FLOPs, took {1e3 * one.seconds:,.0f} "
                f"and {1e3 * other.seconds:,.0f} ms an update, so other programs used the machine, or one of the two is slow "
                f"for another reason; see --equal=time."
            )
    return ""


def write_duel_report(
    plan: Plan, results: Sequence[Result], metric: Metric, power: str, unfinished: int, folder: Path, command: str = ""
) -> tuple[Section, list[Path]]:
    """Write report.md, .html, .tex and .csv, result.json and pictures. Return verdicts, paths."""
    drawings = (
        (draw_forest, "forest", "Differences from the base with 95 % intervals"),
        (draw_duel_curves, "curves", "Learning curves, mean and standard deviation over seeds"),
    )
    files = [
        (draw(results, metric, folder / f"{name}{ending}"), words)
        for draw, name, words in drawings
        for ending in PICTURE_FILES
    ]
    pictures = [Picture(file.name, file.read_bytes(), words) for file, words in files if file and file.suffix == ".png"]
    first = _verdicts(plan, results, metric, power, unfinished)
    no_times = disagreeing_pilots(results)
    differences, budgets = _differences(results, metric), _budgets(results, with_times=not no_times)
    seeds = _values(results, metric)
    sections = [
        first,
        Section("Differences", (differences, METHOD, *pictures)),
        Section("Values by seed", (seeds,)),
        Section("Budgets", (BUDGETS[plan.equal], budgets, COUNTS + (no_times or TIMES))),
        *_conditions(plan, results, command),
    ]
    failed = [
        (result.name, run.seed, run.error, Path(run.folder).name)
        for result in results
        for run in result.runs
        if run.error
    ]
    if failed:
        headings = "idea", "seed", "error", "trial"
        sections.append(Section("Failed runs", (Table(headings, tuple(failed), frozenset({0, 2, 3})),)))
    verdicts = Table(("idea", "verdict"), tuple((result.name, result.verdict) for result in results))
    latex = to_latex(differences, "Differences from the base") + "\n" + to_latex(seeds, "Values by seed")
    tables = {"report.csv": to_csv(differences, budgets, verdicts), "report.tex": latex}
    document = Document(f"Duel on {without_folders(plan.recipe)}", tuple(sections))
    written = write_report(folder, "report", document, tables)
    conditions = {name: value for name, value in vars(plan).items() if name != "planned"}
    warning = plateau_warning(plan, results[0], metric) if results else ""
    conditions |= {"command": command, "power": power, "warning": warning}
    content = {**conditions, "contenders": [_record(result, metric) for result in results]}
    write_whole(folder / "result.json", json.dumps(content, indent=1) + "\n")
    return first, [*written, folder / "result.json", *(file for file, _ in files if file)]


def without_folders(text: str) -> str:
    """Shorten absolute paths to names: ``--workdir=/home/me/duel`` is ``--workdir=duel``."""
    return re.sub(r"(?<![\w:/.~])/(?:[^\s,+/]+/)+", "", text)


def _conditions(plan: Plan, results: Sequence[Result], command: str) -> list[Section]:
    """Return the sections on settings and on command, files and machine, without folders."""
    plans = [result.planned for result in results]
    files = {file: digest for planned in plans for file, digest in planned.contender.files.items()} | plan.plugins
    # Runs may have several values: ideas change the tokenizer, and runs are resumed elsewhere.
    origins: dict[str, dict[str, None]] = {name: {} for name in ORIGIN}
    for run in (run for result in results for run in result.runs):
        for name, key in ORIGIN.items():
            value = run.origin.get(key, "")
            words = [" ".join(pair) for pair in value.items()] if isinstance(value, dict) else value
            text = " ".join(words) if isinstance(words, list) else str(words)
            origins[name] |= {text: None} if text else {}
    rows = [
        ("command", command),
        ("recipe", plan.recipe),
        ("settings of all", " ".join(f"--config.{key}={text}" for key, text in plan.overrides) or "of the recipe"),
        *((name, " / ".join(values)) for name, values in origins.items() if values),
        *((Path(file).name, f"SHA-256 {digest}") for file, digest in files.items()),
    ]
    common = dict(set.intersection(*(set(planned.settings.items()) for planned in plans))) if plans else {}
    rows.insert(3, ("set by the duel", " ".join(f"--config.{key}={common[key]}" for key in sorted(common))))

    def listing(settings: Mapping[str, str]) -> str:
        return without_folders(", ".join(f"{key}={text}" for key, text in settings.items() if key not in common))

    settings = Table.of_columns(
        ("idea", [planned.contender.name for planned in plans]),
        ("settings", [listing(planned.contender.settings) for planned in plans]),
        ("set by the duel", [listing(planned.settings) for planned in plans]),
        of_text=range(3),
    )
    texts = tuple((name, without_folders(text)) for name, text in rows)
    conditions = Table(("", "of the runs"), texts, frozenset({0, 1}))
    return [Section("Settings", (settings,)), Section("Conditions", (conditions,))]


def _values(results: Sequence[Result], metric: Metric) -> Table:
    """Return the last validation of every run, in the metric and in the loss."""
    seeds = sorted({seed for result in results for seed in result.sound})
    rows = []
    for key, measure in measures(metric).items():
        for result in results:
            if key != LOSS or result.is_loss_comparable or key == metric.key:
                finals = result.final(key)
                rows.append((result.name, measure.label, *(Cell.of(finals.get(seed), measure.text) for seed in seeds)))
    return Table(("idea", "metric", *(f"seed {seed}" for seed in seeds)), tuple(rows), frozenset({0, 1}))


def _record(result: Result, metric: Metric) -> dict[str, Any]:
    """Return a contender in result.json: verdict, cost, tests by metric, and all runs."""
    planned = result.planned
    record = {"idea": result.name, "verdict": result.verdict, **asdict(planned.cost), "seconds": result.seconds}
    record |= {"updates": planned.updates, "failed": result.failures, "effect": result.effect}
    for key in measures(metric):
        difference = result.tests.get(key)
        values: dict[str, Any] = dict.fromkeys(PairedTest._fields)
        if difference:
            values = difference.test._asdict() | {"p_holm": difference.adjusted}
        record |= {f"{key} {name}": value for name, value in values.items()}
    settings = planned.contender.settings | planned.settings
    return {**record, "settings": settings, "runs": [run._asdict() for run in result.runs]}


def _verdicts(plan: Plan, results: Sequence[Result], metric: Metric, power: str, unfinished: int) -> Section:
    blocks: list[str | Table] = []
    if results and (finals := results[0].final(metric.key).values()):
        seeds, floor = "seed" if len(finals) == 1 else "seeds", results[0].deviation(metric.key)
        deviation = "" if floor is None else f", standard deviation {metric.text(floor)}"
        blocks.append(f"base: {metric.label} {metric.text(fmean(finals))} over {len(finals)} {seeds}{deviation}.")
        blocks += filter(None, [plateau_warning(plan, results[0], metric)])
    if results[1:]:
        rows = tuple((result.name, result.verdict) for result in results[1:])
        heading = f"verdict on {metric.label} at equal {plan.equal.replace('flops', 'FLOPs')}"
        blocks.append(Table(("idea", heading), rows, frozenset({0, 1})))
    if unfinished:
        blocks.append(f"{unfinished} runs have not ended. The same command resumes them.")
    return Section("Verdicts", (*blocks, power))


def _differences(results: Sequence[Result], metric: Metric) -> Table:
    both, headings = measures(metric), []
    for key, measure in both.items():
        headings += [Cell(measure.label, (key, f"{key} deviation"))]
        headings += [Cell.of_interval(f"{key} difference", "difference"), Cell("p", f"{key} p")]
    rows = []
    for result in results:
        cells: list[Any] = [result.name, len(result.sound)]
        for key, measure in both.items():
            if key == LOSS and not result.is_loss_comparable:
                cells += [None, Cell("not comparable", None), None]
                continue
            finals, (test, adjusted, _) = result.final(key).values(), result.tests.get(key, (None, None, ()))
            mean, deviation = fmean(finals) if finals else None, result.deviation(key)
            texts = [measure.text(number) for number in (mean, deviation) if number is not None]
            cells += [Cell(" ± ".join(texts), (mean, deviation))]
            cells += [Cell.interval(test.mean, test.low, test.high, measure.digits, "+") if test else None]
            cells += [Cell.of(adjusted, lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001")]
        rows.append((*cells, Cell.of(result.effect, "{:+.1f}"), result.failures))
    return Table(("idea", "seeds", *headings, "effect", "failed"), tuple(rows))


def _budgets(results: Sequence[Result], *, with_times: bool) -> Table:
    plans = [result.planned for result in results]
    milliseconds = [result.seconds and 1e3 * result.seconds for result in results]
    times = (
        ("ms an update", [Cell.of(value, "{:,.1f}") for value in milliseconds]),
        ("load", [Cell.of(planned.cost.load or None, "{:.1f}") for planned in plans]),
    )
    return Table.of_columns(
        ("idea", [result.name for result in results]),
        ("parameters", [Cell.of(planned.cost.parameters, "{:,}") for planned in plans]),
        ("GFLOPs an update", [Cell.of(planned.cost.flops / 1e9, "{:,.4g}") for planned in plans]),
        ("updates", [Cell.of(planned.updates, "{:,}") for planned in plans]),
        ("TFLOPs a run", [Cell.of(planned.cost.flops * planned.updates / 1e12, "{:,.4g}") for planned in plans]),
        ("MiB of memory", [Cell.of(planned.cost.memory / 2**20, "{:,.1f}") for planned in plans]),
        *(times if with_times else ()),
    )


class Differences(NamedTuple):
    """Differences of ideas in a metric, with the standard deviation of the base, its ``floor``."""

    label: str
    is_higher_better: bool
    floor: float | None
    ideas: Mapping[str, Difference]


def draw_forest(results: Sequence[Result], metric: Metric, path: Path) -> Path | None:
    """Draw the differences in the metric and in the loss, if there is a test."""
    tested, columns = [result for result in results if metric.key in result.tests], []
    for key, measure in measures(metric).items():
        if ideas := {result.name: result.tests[key] for result in tested if key in result.tests}:
            floor = results[0].deviation(key)
            columns.append(Differences(measure.label, measure.direction == "maximize", floor, ideas))
    return draw_differences(columns, path) if columns else None


def draw_differences(columns: Sequence[Differences], path: Path) -> Path:
    """Draw a row per idea, sorted by the first metric: mean, 95 % interval, seeds as dots.

    The gray band is one noise floor of the base on either side of 0.
    """
    sign = -1 if columns[0].is_higher_better else 1
    names = sorted(columns[0].ideas, key=lambda name: sign * columns[0].ideas[name].test.mean)
    left = 0.3 + LETTER * max(map(len, names))
    height = ROW_HEIGHT * len(names) + 0.2
    figure = canvas.blank_figure(left + len(columns) * (PANEL_WIDTH + PANEL_GAP), TOP + height + BOTTOM)
    for number, column in enumerate(columns):
        axes = canvas.add_panel(figure, left + number * (PANEL_WIDTH + PANEL_GAP), TOP, PANEL_WIDTH, height)
        canvas.style_axes(
            axes, f"difference in {column.label}; {'right' if column.is_higher_better else 'left'} is better"
        )
        axes.grid(axis="y", visible=False)
        if column.floor is not None:
            axes.axvspan(-column.floor, column.floor, color=HAIRLINE, alpha=0.45, linewidth=0)
        for row, name in enumerate(names):
            if (idea := column.ideas.get(name)) is None:
                continue
            test, is_better = idea.test, (idea.test.mean > 0) == column.is_higher_better
            color = UNCERTAIN if idea.adjusted >= LEVEL else BETTER if is_better else WORSE
            axes.plot(
                idea.dots, [row + 0.22] * len(idea.dots), "o", color=color, markersize=3.2, alpha=0.4, markeredgewidth=0
            )
            axes.plot([test.low, test.high], [row, row], color=color, linewidth=1.6, solid_capstyle="butt")
            axes.plot([test.mean], [row], "D", color=color, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_ylim(len(names) - 0.5, -0.5)
        labels = names if number == 0 else [""] * len(names)
        axes.set_yticks(range(len(names)), labels=labels, fontproperties=font(8.5), color=INK)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
        axes.set_title(
            column.label, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False
        )
    canvas.add_title(figure, "Difference from the base, 95 % intervals")
    for words, color, x in (("better", BETTER, 0.17), ("worse", WORSE, 0.75), ("not beyond chance", UNCERTAIN, 1.29)):
        text = figure.text(x / figure.get_figwidth(), 1 - 0.5 / figure.get_figheight(), words, color=color)
        text.set_fontproperties(font(8.5, weight="bold"))
    return canvas.write_png(figure, path)


def draw_duel_curves(results: Sequence[Result], metric: Metric, path: Path) -> Path | None:
    """Draw loss and metric by the share of the budget: mean and standard deviation over seeds."""
    # The base comes last, on top: an idea that changes nothing has the same curve.
    ordered = [result for result in (*results[1:], *results[:1]) if result.sound]
    panels = []
    for key, measure in reversed(measures(metric).items()) if ordered else ():
        lines: dict[str, Sequence[npt.ArrayLike]] = {}
        bands: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        # Without a line the others keep their colors.
        unlisted = tuple(result.name for result in ordered if key == LOSS and not result.is_loss_comparable)
        for result in ordered:
            curve = {} if result.name in unlisted else result.curve(key)
            means = np.array([fmean(values) for values in curve.values()])
            spreads = np.array([stdev(values) if len(values) > 1 else 0.0 for values in curve.values()])
            lines[result.name] = [100 * step / result.planned.updates for step in curve], means
            bands[result.name] = means - spreads, means + spreads
        panels.append(
            LinePanel(measure.label, lines, "% of the budget", "", dotted=(BASE,), bands=bands, unlisted=unlisted)
        )
    title = "Validations, mean and standard deviation over seeds"
    return draw_panels(panels, path, title=title) if panels else None
