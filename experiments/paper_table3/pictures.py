"""The paper's effects beside ours, as a picture."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from effects import Spread

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, HAIRLINE, INK, LINE_COLORS, font

LEFT, TOP, WIDTH, LINE, BELOW = 1.5, 0.45, 4.6, 0.24, 0.85
PAPER, OURS = LINE_COLORS[1], LINE_COLORS[0]


class Change(NamedTuple):
    """Logarithms of perplexities, row over base: the paper's, ours, and the bounds that the seeds
    of both leave."""

    name: str
    paper: float
    ours: float
    lower: float
    upper: float


def change_in_loss(name: str, paper: float, paper_base: float, row: Spread, base: Spread) -> Change:
    """From perplexities; the bounds are on both sides of 0 where seeds of the row and of the base
    mix."""
    return Change(
        name,
        paper=math.log(paper / paper_base),
        ours=math.log(row.mean / base.mean),
        lower=math.log(row.least / base.most),
        upper=math.log(row.most / base.least),
    )


def draw_changes(changes: Sequence[Change], path: Path, title: str) -> Path:
    """Two marks a row, the paper's and ours with its bounds; left of the line in the middle is
    better than the base."""
    height = LINE * (len(changes) + 0.5)
    figure = canvas.blank_figure(LEFT + WIDTH + 0.3, TOP + height + BELOW)
    axes = canvas.add_panel(figure, LEFT, TOP, WIDTH, height)
    places = range(len(changes))
    ours = [change.ours for change in changes]
    bars = [[change.ours - change.lower for change in changes], [change.upper - change.ours for change in changes]]
    axes.axvline(0, color=FAINT_INK, linewidth=0.8)
    axes.plot([change.paper for change in changes], places, "D", color=PAPER, markersize=5, label="the paper")
    axes.errorbar(ours, places, xerr=bars, fmt="o", color=OURS, markersize=5, elinewidth=1.2, label="ours")
    axes.set_yticks(places, [change.name for change in changes])
    axes.set_ylim(len(changes) - 0.25, -0.75)
    axes.set_xlabel("loss beside the base model's, nats a token (logarithm of the ratio of perplexities)")
    axes.xaxis.label.set(fontproperties=font(8), color=FAINT_INK)
    axes.tick_params(length=0, labelcolor=INK, labelsize=7.5)
    axes.grid(axis="x", color=HAIRLINE, linewidth=0.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(HAIRLINE)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.45 / height),
        ncols=2,
        prop=font(7.5),
        frameon=False,
        labelcolor=INK,
        borderaxespad=0,
    )
    canvas.add_title(figure, title, 10)
    return canvas.write_png(figure, path)
