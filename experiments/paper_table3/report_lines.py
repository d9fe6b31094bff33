"""The lines of a table, paper beside ours: cells for a reader, figures in full for a
spreadsheet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from effects import Effect, Spread
from row_results import RowResult

from transformer_jax.evaluation.significance import Estimate
from transformer_jax.tools.study.document import Table, to_csv


@dataclass(frozen=True)
class Line:
    """A row of the table under its headings, and the same as figures by name."""

    cells: dict[str, str] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)

    def __or__(self, other: "Line") -> "Line":
        """Both, the other's to the right."""
        return Line(self.cells | other.cells, self.figures | other.figures)


def table_of(lines: Sequence[Line], of_text: frozenset[int]) -> Table:
    """Every heading of any line; an empty cell where a line has none."""
    headings = tuple(dict.fromkeys(heading for line in lines for heading in line.cells))
    return Table(headings, tuple(tuple(line.cells.get(heading, "") for heading in headings) for line in lines), of_text)


def csv_of(lines: Sequence[Line]) -> str:
    """Every name of any line."""
    names = tuple(dict.fromkeys(name for line in lines for name in line.figures))
    return to_csv(Table(names, tuple(tuple(line.figures.get(name) for name in names) for line in lines)))


def name_line(name: str, changes: str) -> Line:
    """Which row, and what is different in it."""
    return Line({"row": name, "change": changes}, {"row": name, "change": changes})


def perplexity_line(perplexity: Spread) -> Line:
    """The mean over seeds, and the least and the most."""
    figures = {f"perplexity {key}": value for key, value in perplexity._asdict().items()}
    return Line({"perplexity": with_bounds(perplexity.mean, perplexity.least, perplexity.most)}, figures)


def bleu_line(bleu: Spread, interval: Estimate) -> Line:
    """The mean over seeds with what 95 % of other choices of sentences would give."""
    figures = {f"BLEU {key}": value for key, value in bleu._asdict().items()}
    figures |= {"BLEU lower 95 %": interval.lower, "BLEU upper 95 %": interval.upper}
    return Line({"BLEU": with_bounds(interval.value, interval.lower, interval.upper, digits=1)}, figures)


def paper_line(name: str, value: float | None, form: str = "{:g}") -> Line:
    """What the paper reports."""
    heading = f"paper's {name}"
    return Line({heading: "" if value is None else form.format(value)}, {heading: value})


def effect_line(name: str, effect: Effect | None) -> Line:
    """Which way a row goes from its base; nothing of a base itself."""
    heading = f"effect on {name}"
    if effect is None:
        return Line({heading: ""})
    figures = {
        f"{heading}, paper": effect.paper,
        f"{heading}, ours": effect.ours,
        f"{heading}, same direction": effect.agrees,
        f"{heading}, beyond the seeds": effect.is_decided,
    }
    return Line({heading: effect.words()}, figures)


def size_line(parameters: int) -> Line:
    """Parameters in millions."""
    return Line({"M parameters": f"{parameters / 1e6:.2f}"}, {"parameters": parameters})


def cost_line(result: RowResult, ceiling: float) -> Line:
    """Operations and speed of a run; with a ceiling in TFLOP/s of a device also the share of it
    that is used."""
    line = Line(
        {"train FLOPs": scientific(result.flops), "steps/s": f"{result.updates_per_second:.2f}"},
        {"train FLOPs": result.flops, "steps/s": result.updates_per_second},
    )
    if not ceiling:
        return line
    used = result.flops_per_second_of_a_device / (ceiling * 1e12)
    return line | Line({"MFU": f"{used:.1%}"}, {"MFU": used})


def with_bounds(value: float, lower: float, upper: float, digits: int = 2) -> str:
    """``70.03 (69.51 - 70.55)``."""
    return f"{value:.{digits}f} ({lower:.{digits}f} - {upper:.{digits}f})"


def scientific(value: float) -> str:
    """``3.3e18``, as the paper's table 2 has it without its superscripts."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
