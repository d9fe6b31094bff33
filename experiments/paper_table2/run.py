"""Table 2 of Vaswani et al. 2017, paper against ours: base and big, English to German and to
French, on the test split.

    python experiments/paper_table2/run.py --scale=small --data=multi30k --workdir=runs/table2 --workers=2
    python experiments/paper_table2/run.py --scale=paper --workdir=runs/table2-wmt --rows="base En-De"

Trains the rows as a sweep (sweep.py), which the same command resumes with after an interruption,
and which other machines join with the same command; --table_only trains nothing. Then translates
the test split with the average of the last checkpoints of every trial, unless that was done, and
writes table.md, .html and .csv into --output. Flags of transformer-jax sweep, --config.KEY=VALUE
among them, are passed on.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

# Where all tables of the paper are made.
sys.path.append(str(Path(__file__).resolve().parents[1] / "paper_table3"))

from effects import Effect, effect
from report_lines import (
    Line,
    bleu_line,
    cost_line,
    csv_of,
    effect_line,
    name_line,
    paper_line,
    perplexity_line,
    scientific,
    size_line,
    table_of,
)
from reported import AVERAGED, FOUND, OTHERS, Reported, base_of
from row_results import RowResult, changes
from running import Measured, how_measured, how_to_read_effects, run_table

from transformer_jax.tools.study.document import Document, Section, Table

HERE = Path(__file__).resolve().parent
PLACES = {"small": "the small scale", "paper": "WMT 2014"}
SMALL_WORDS = (
    "Only the small scale was run, another corpus, far smaller models and a tiny budget: BLEU is not to be compared with the "
    "paper's, only whether the big model is better than the base model."
)
FLOPS_WORDS = (
    "The paper estimates its operations as training time times GPUs times the sustained speed of each (9.5 TFLOP/s of a P100), "
    "whether they are used or not; ours are those that the matrix products take, so at the same scale ours are fewer. Its BLEU "
    "is of tokenized text, with German compounds split, and about 0.7 above sacreBLEU's in German."
)


def report(measured: Measured) -> tuple[Document, str]:
    """Our rows beside the paper's, and below them the systems of others."""
    scale, results = measured.flags.scale, measured.results
    lines = [line_of(name, measured) for name in results]
    words = [SMALL_WORDS] if scale == "small" else []
    averaged = f"the mean of the last {average_of(scale, 'base')} checkpoints"
    if average_of(scale, "big") != average_of(scale, "base"):
        averaged += f" (of big {average_of(scale, 'big')})"
    ours = Section(
        PLACES[scale].capitalize(),
        (
            table_of(lines, frozenset({0, 1})),
            *words,
            how_to_read_effects(measured.seeds),
            how_measured(measured, f"{averaged}, on the test split"),
            FLOPS_WORDS,
        ),
    )
    quoted = Section("Other systems, as the paper quotes them (newstest2014)", (others(),))
    return Document("Table 2 of Vaswani et al. 2017, paper against ours", (ours, quoted)), csv_of(lines)


def line_of(name: str, measured: Measured) -> Line:
    """Paper, ours and the direction from base to big; then what it costs."""
    result, paper, base = measured.results[name], FOUND[name], base_of(name)
    changed = changes(measured.rows[name], measured.rows[base]) if base in measured.rows and name != base else ""
    line = name_line(name, changed) | paper_line("BLEU", paper.bleu, "{:.1f}") | bleu_line(result.bleu, result.interval)
    line |= effect_line("BLEU", effect_of(name, measured.results)) | perplexity_line(result.perplexity)
    line |= Line({"paper's FLOPs": scientific(paper.flops or 0.0)}, {"paper's FLOPs": paper.flops})
    return line | cost_line(result, measured.flags.ceiling) | size_line(result.parameters)


def effect_of(name: str, results: dict[str, RowResult]) -> Effect | None:
    """Of big on BLEU; None of a base model, and without one."""
    base = base_of(name)
    if name == base or base not in results:
        return None
    return effect(FOUND[name].bleu, FOUND[base].bleu, results[name].bleu, results[base].bleu)


def others() -> Table:
    """The upper part of the paper's table."""

    def cells(reported: Reported | None) -> tuple[str, str]:
        if reported is None:
            return "", ""
        return f"{reported.bleu:g}", "" if reported.flops is None else scientific(reported.flops)

    rows = []
    for name, (german, french) in OTHERS.items():
        (german_bleu, german_flops), (french_bleu, french_flops) = cells(german), cells(french)
        rows.append((name, german_bleu, french_bleu, german_flops, french_flops))
    return Table(("system", "BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr"), tuple(rows))


def average_of(scale: str, name: str) -> int:
    """Of how many checkpoints the parameters of a row are the mean."""
    return AVERAGED["base"] if scale == "small" else AVERAGED[name.partition(" ")[0]]


def main(argv: Sequence[str]) -> int:
    """Trains, measures, writes."""
    return run_table(HERE, str(__doc__), "test", average_of, report, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
