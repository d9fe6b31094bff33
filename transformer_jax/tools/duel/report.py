"""The report of a duel: verdicts, differences, budgets and pictures, as HTML, Markdown, CSV and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from transformer_jax.config import Metric
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.duel.pictures import draw_duel_curves, draw_forest
from transformer_jax.tools.duel.plan import ROUNDS, Plan
from transformer_jax.tools.duel.results import LOSS, Result
from transformer_jax.tools.duel.statistics import PairedTest
from transformer_jax.tools.reports.document import Document, Picture, Section, Table, to_csv, write_report

METHOD = (
    "Every idea has the seeds of the base: the same order of the data, and the same initial values where shapes agree. A "
    "difference is the idea less the base, seed by seed, after the last update; in brackets its 95 % interval by Student's t, "
    "of each idea alone. p: how likely a difference at least as large is if the idea changes nothing (paired t test), "
    "adjusted by Holm for all ideas; an idea helps or hurts if it is below 0.05. Effect: the difference over the noise floor, "
    "which is the standard deviation of the base between seeds. Reached: updates at which the mean validation loss is the "
    "final one of the base, interpolated between validations. Failed runs, diverged or ended by an error, are counted, and "
    "leave the pair of their seed out of the test. The loss is not comparable where an idea changes what it measures, such as "
    "a loss per token with another tokenizer."
)
BUDGETS = {
    "flops": "The runs of an idea have the FLOPs of the base's runs: the more an update has, the fewer updates.",
    "time": f"The runs of an idea have the time in updates of the base's runs, measured by pilots in turn (best of {ROUNDS}).",
    "updates": "All runs have the same number of updates; an idea may use more operations and parameters.",
    "parameters": "All runs have the same number of updates; the feed-forward width, a multiple of 8, matches the parameters.",
}
COUNTS = (
    "FLOPs are of matrix products and convolutions: forward, backward and in the optimizer, without recomputation, on the "
    "batches of the run. Milliseconds were measured in the runs, with the wait for data, without validations and start-up. "
    "Memory: the state and the temporary arrays of the compiled update."
)


def write_duel_report(
    plan: Plan,
    results: Sequence[Result],
    metric: Metric,
    power: str,
    unfinished: int,
    tuning: Section | None,
    folder: Path,
) -> tuple[Section, list[Path]]:
    """Writes report.md, .html and .csv, result.json and the pictures; returns the first section, and the paths."""
    drawn = {
        draw_forest(results, metric, folder / "forest.png"): "Differences from the base with 95 % intervals",
        draw_duel_curves(
            results, metric, folder / "curves.png"
        ): "Learning curves, mean and standard deviation over seeds",
    }
    pictures = tuple(Picture(file.name, file.read_bytes(), words) for file, words in drawn.items() if file)
    first = _verdicts(plan, results, metric, power, unfinished)
    sections = [
        first,
        Section("Differences", (_differences(results, metric), METHOD, *pictures)),
        Section("Budgets", (BUDGETS[plan.equal], _budgets(results), COUNTS)),
        Section("Settings", (_settings(plan, results),)),
        *([tuning] if tuning else []),
    ]
    failed = [(each.name, str(run.seed), run.error, run.folder) for each in results for run in each.runs if run.error]
    if failed:
        headings = "idea", "seed", "error", "folder"
        sections.append(Section("Failed runs", (Table(headings, tuple(failed), frozenset({0, 2, 3})),)))
    records = [_record(each, metric) for each in results]
    csv = to_csv([*records[0]] if records else [], [[*each.values()] for each in records])
    document = Document(f"Duel on {plan.recipe}", tuple(sections))
    written = write_report(folder, "report", document, {"report.csv": csv})
    contenders = [
        record
        | {"settings": each.planned.contender.settings | plan.settings_of(each.planned)}
        | {"runs": [run._asdict() for run in each.runs]}
        for record, each in zip(records, results, strict=True)
    ]
    conditions = {each.name: getattr(plan, each.name) for each in fields(plan) if each.name != "planned"}
    content = {**conditions, "power": power, "contenders": contenders}
    write_whole(folder / "result.json", json.dumps(content, indent=1) + "\n")
    return first, [*written, folder / "result.json", *(file for file in drawn if file)]


def _verdicts(plan: Plan, results: Sequence[Result], metric: Metric, power: str, unfinished: int) -> Section:
    blocks: list[str | Table] = []
    for each in results:
        finals = each.finals(metric.key)
        if each.is_base and finals:
            seeds = "seed" if len(finals) == 1 else "seeds"
            spread = f", standard deviation {metric.text(stdev(finals))}" if len(finals) > 1 else ""
            blocks.append(
                f"{each.name}: {metric.label} {metric.text(fmean(finals))} over {len(finals)} {seeds}{spread}."
            )
    ideas = [each for each in results if not each.is_base]
    if ideas:
        rows = tuple((each.name, each.verdict) for each in ideas)
        blocks.append(
            Table(
                ("idea", f"verdict on {metric.label} at equal {plan.equal.replace('flops', 'FLOPs')}"),
                rows,
                frozenset({0, 1}),
            )
        )
    for name in dict.fromkeys(each.planned.contender.idea for each in ideas):
        means = {
            each.size: each.tests[0].mean for each in ideas if each.planned.contender.idea == name and each.tests[0]
        }
        if len(means) > 1:
            holds = "the same" if len({mean > 0 for mean in means.values()}) == 1 else "not the same"
            blocks.append(f"{name}: the sign of the mean difference is {holds} at sizes {', '.join(map(str, means))}.")
    if unfinished:
        blocks.append(f"{unfinished} runs have not ended; the same command resumes them.")
    return Section("Verdicts", (*blocks, power))


def _differences(results: Sequence[Result], metric: Metric) -> Table:
    # Tests of the metric, then of the loss, unless that is the metric.
    both = [(metric.key, metric.label, metric.digits), (LOSS, "loss", 4)][: 1 + (metric.key != LOSS)]
    tested = [heading for _, label, _ in both for heading in (label, "difference", "p")]
    headings = ("idea", "seeds", *tested, "effect", "reached", "failed")
    rows = []
    for each in results:
        cells = [each.name, str(len(each.sound))]
        for (key, _, digits), test, p in zip(both, each.tests, each.adjusted, strict=False):
            if key == LOSS and not each.is_loss_comparable:
                cells += ["", "not comparable", ""]
                continue
            finals = each.finals(key)
            cells.append(f"{fmean(finals):.{digits}f}" if finals else "")
            interval = f" [{test.low:+.{digits}f}, {test.high:+.{digits}f}]" if test else ""
            cells.append(f"{test.mean:+.{digits}f}{interval}" if test else "")
            cells.append("" if test is None else f"{p:.3f}" if p >= 0.001 else "< 0.001")
        reached = "never" if each.is_loss_comparable else ""
        if each.reached is not None:
            reached = f"{each.reached:,.0f} of {each.planned.updates:,}"
        rows.append((*cells, "" if each.effect is None else f"{each.effect:+.1f}", reached, f"{each.failures}"))
    return Table(headings, tuple(rows))


def _budgets(results: Sequence[Result]) -> Table:
    headings = "idea", "parameters", "GFLOPs an update", "updates", "TFLOPs a run", "ms an update", "MiB of memory"
    rows = []
    for each in results:
        cost, updates = each.planned.cost, each.planned.updates
        milliseconds = "" if each.seconds is None else f"{1e3 * each.seconds:,.1f}"
        flops = f"{cost.flops / 1e9:,.4g}", f"{updates:,}", f"{cost.flops * updates / 1e12:,.4g}"
        rows.append((each.name, f"{cost.parameters:,}", *flops, milliseconds, f"{cost.memory / 2**20:,.1f}"))
    return Table(headings, tuple(rows))


def _settings(plan: Plan, results: Sequence[Result]) -> Table:
    rows = [
        (each.name, *(", ".join(f"{key}={text}" for key, text in settings.items()) for settings in both))
        for each in results
        for both in ((each.planned.contender.settings, plan.settings_of(each.planned)),)
    ]
    return Table(("idea", "settings", "of its runs"), tuple(rows), frozenset({0, 1, 2}))


def tuning_section(plan: Plan, scores: dict[str, dict[str, float]], metric: Metric) -> Section:
    """The values of tuned contenders, the cost of the choice, and a warning where the best is at the edge of the grid."""
    scores = {name: found for name, found in scores.items() if plan.planned[name].tuned}
    chosen = [plan.planned[name] for name in scores]
    cost = sum(len(each.grid) * each.cost.flops * each.updates for each in chosen)
    edges = [each.contender.name for each in chosen if each.tuned in (each.grid[0], each.grid[-1])]
    blocks = [
        f"{plan.tuned_key} is the best of {len(chosen[0].grid)} values for each, powers of 2 apart, with one run a value and "
        f"a seed of its own. Together {cost / 1e12:,.4g} TFLOPs, which the budgets do not count."
    ]
    if edges:
        blocks.append(
            f"The best value is at the edge of the grid for {', '.join(edges)}: a larger grid may have a better one."
        )
    rows = tuple((name, value, metric.text(score)) for name, found in scores.items() for value, score in found.items())
    return Section("Tuning", (*blocks, Table(("idea", plan.tuned_key, metric.label), rows)))


def _record(result: Result, metric: Metric) -> dict[str, Any]:
    """A line of report.csv, numbers in full."""
    found = {"idea": result.planned.contender.idea, "size": result.size, "verdict": result.verdict}
    found |= asdict(result.planned.cost) | {"seconds": result.seconds, "updates": result.planned.updates}
    found |= {"runs": len(result.runs), "failed": result.failures, "effect": result.effect, "reached": result.reached}
    for key, test, p in zip((metric.key, LOSS), result.tests, result.adjusted, strict=True):
        values = test._asdict() | {"p_holm": p} if test else dict.fromkeys((*PairedTest._fields, "p_holm"))
        found |= {f"{key} {name}": value for name, value in values.items()}
    return found
