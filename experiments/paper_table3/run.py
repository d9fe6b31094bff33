"""Table 3 of Vaswani et al. 2017, paper against ours: any of its rows, at the paper's scale or at
one for two CPU cores.

    python experiments/paper_table3/run.py --scale=small --data=multi30k --workdir=runs/table3 --workers=2
    python experiments/paper_table3/run.py --scale=paper --workdir=runs/table3-wmt --rows="base,A heads/8"

Trains the rows as a sweep (sweep.py), which the same command resumes with after an interruption,
and which other machines join with the same command; --table_only trains nothing. Then translates
the validation split with the last checkpoint of every trial, unless that was done, and writes
table.md, .html, .csv and effects.png into --output. Flags of transformer-jax sweep,
--config.KEY=VALUE among them, are passed on.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from effects import Effect, effect, tally
from pictures import change_in_loss, draw_changes
from report_lines import (
    Line,
    bleu_line,
    cost_line,
    csv_of,
    effect_line,
    name_line,
    paper_line,
    perplexity_line,
    size_line,
    table_of,
)
from row_results import RowResult, changes
from rows import FOUND
from running import Measured, how_measured, how_to_read_effects, run_table

from transformer_jax.tools.study.document import Document, Picture, Section

HERE = Path(__file__).resolve().parent
BASE = "base"
PICTURE = "effects.png"
PLACES = {"small": "the small scale", "paper": "WMT 2014 English-German"}


def report(measured: Measured) -> tuple[Document, str]:
    """The table, what it says in words, and the picture where there is a base to compare with."""
    scale, results = measured.flags.scale, measured.results
    effects = {name: effects_of(name, results) for name in results}
    lines = [line_of(name, measured, effects[name]) for name in results]
    blocks: list = [table_of(lines, frozenset({0, 1})), *verdicts(scale, effects, measured.seeds)]
    blocks.append(how_measured(measured, "the last checkpoint, on the validation split, which the paper's are too"))
    drawn = [
        change_in_loss(
            name, FOUND[name].perplexity, FOUND[BASE].perplexity, result.perplexity, results[BASE].perplexity
        )
        for name, result in results.items()
        if name != BASE and BASE in results
    ]
    if drawn:
        title = f"Table 3: what each change does to the loss, the paper and {PLACES[scale]}"
        path = draw_changes(drawn, measured.flags.output / PICTURE, title)
        blocks.append(Picture(PICTURE, path.read_bytes(), title))
    document = Document(
        "Table 3 of Vaswani et al. 2017, paper against ours", (Section(PLACES[scale].capitalize(), tuple(blocks)),)
    )
    return document, csv_of(lines)


def effects_of(name: str, results: dict[str, RowResult]) -> dict[str, Effect]:
    """Of a row on perplexity and on BLEU; of the base itself, and without one, none."""
    if name == BASE or BASE not in results:
        return {}
    paper, paper_base, ours, base = FOUND[name], FOUND[BASE], results[name], results[BASE]
    return {
        "perplexity": effect(paper.perplexity, paper_base.perplexity, ours.perplexity, base.perplexity),
        "BLEU": effect(paper.bleu, paper_base.bleu, ours.bleu, base.bleu),
    }


def line_of(name: str, measured: Measured, effects: dict[str, Effect]) -> Line:
    """Paper, ours and the direction; then what it costs."""
    result, paper = measured.results[name], FOUND[name]
    base = measured.rows.get(BASE, {})
    line = name_line(name, changes(measured.rows[name], base) if name != BASE else "")
    line |= paper_line("perplexity", paper.perplexity, "{:.2f}") | perplexity_line(result.perplexity)
    line |= effect_line("perplexity", effects.get("perplexity"))
    line |= paper_line("BLEU", paper.bleu, "{:.1f}") | bleu_line(result.bleu, result.interval)
    line |= effect_line("BLEU", effects.get("BLEU"))
    line |= paper_line("M parameters", paper.millions) | size_line(result.parameters)
    return line | cost_line(result, measured.flags.ceiling)


def verdicts(scale: str, effects: dict[str, dict[str, Effect]], seeds: int) -> list[str]:
    """What may be compared, and how often the direction is the paper's."""
    words = []
    if scale == "small":
        words.append(
            "Only the small scale was run, another corpus, far smaller models and a tiny budget: perplexity and BLEU are "
            "not to be compared with the paper's, only the direction in which a change moves them. Every row changes one thing "
            "by the paper's ratio."
        )
    counts = []
    for metric in ("perplexity", "BLEU"):
        same, decided = tally([each[metric] for each in effects.values() if metric in each])
        counts.append(f"of {decided} on {metric} {same}")
    if any(effects.values()):
        told = (
            f"Of the effects that the seeds can tell and the paper has, these go the paper's way: {', '.join(counts)}."
        )
        words.append(f"{told} {how_to_read_effects(seeds)}")
    return words


def main(argv: Sequence[str]) -> int:
    """Trains, measures, writes."""
    # Section 6.2: no averaging of checkpoints here.
    return run_table(HERE, str(__doc__), "validation", lambda scale, row: 1, report, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
