"""Pictures of a duel: differences with their intervals, and learning curves with bands."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from transformer_jax.config import Metric
from transformer_jax.tools.duel.results import LOSS, Result
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import HAIRLINE, INK, LINE_COLORS, font
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels

PANEL_WIDTH, ROW, TOP, BOTTOM, LETTER = 3.6, 0.34, 0.75, 0.62, 0.085


def draw_forest(results: Sequence[Result], metric: Metric, path: Path) -> Path | None:
    """A row for each idea: mean difference from the base, its 95 % interval and the runs, in the metric and in the loss.

    The gray band is one noise floor of the base on either side of 0. None, and no picture, before there is a test.
    """
    ideas = [each for each in results if each.tests[0]]
    if not ideas:
        return None
    bases = {each.size: each for each in results if each.is_base}
    names = [each.name for each in ideas]
    left = 0.3 + LETTER * max(map(len, names))
    height = ROW * len(ideas) + 0.2
    keys = dict.fromkeys((metric.key, LOSS) if any(each.tests[1] for each in ideas) else (metric.key,))
    figure = canvas.blank_figure(left + len(keys) * (PANEL_WIDTH + 0.35), TOP + height + BOTTOM)
    for column, key in enumerate(keys):
        axes = canvas.add_panel(figure, left + column * (PANEL_WIDTH + 0.35), TOP, PANEL_WIDTH, height)
        is_higher_better = key == metric.key and metric.direction == "maximize"
        label = metric.label if key == metric.key else "loss"
        better = "right: better than the base" if is_higher_better else "left: better than the base"
        canvas.style_axes(axes, f"difference in {label}; {better}")
        axes.grid(axis="y", visible=False)
        for row, idea in enumerate(ideas):
            base, test = bases[idea.size], idea.tests[0 if key == metric.key else 1]
            if test is None:
                continue
            finals, color = base.finals(key), LINE_COLORS[row % len(LINE_COLORS)]
            if len(finals) > 1:
                floor = stdev(finals)
                axes.fill_betweenx([row - 0.5, row + 0.5], -floor, floor, color=HAIRLINE, alpha=0.45, linewidth=0)
            dots = idea.differences(base, key)
            axes.plot(dots, [row + 0.22] * len(dots), "o", color=color, markersize=3.2, alpha=0.4, markeredgewidth=0)
            axes.plot([test.low, test.high], [row, row], color=color, linewidth=1.6, solid_capstyle="butt")
            axes.plot([test.mean], [row], "D", color=color, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_ylim(len(ideas) - 0.5, -0.5)
        labels = names if column == 0 else [""] * len(names)
        axes.set_yticks(range(len(ideas)), labels=labels, fontproperties=font(8.5), color=INK)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
        axes.set_title(label, loc="left", fontproperties=font(9.5, weight="bold"), color=INK, pad=6, parse_math=False)
    canvas.add_title(figure, "Difference from the base, 95 % intervals")
    return canvas.write_png(figure, path)


def draw_duel_curves(results: Sequence[Result], metric: Metric, path: Path) -> Path | None:
    """Loss and metric over the share of the budget, for each size: mean over seeds, and a band of one standard deviation."""
    drawn = [each for each in results if each.sound]
    if not drawn:
        return None
    sizes = dict.fromkeys(each.size for each in drawn)
    panels = []
    for size, key in itertools.product(sizes, dict.fromkeys((LOSS, metric.key))):
        lines: dict[str, Sequence[npt.ArrayLike]] = {}
        bands: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        unlisted: list[str] = []
        # The base comes last, on top: an idea that changes nothing has the same curve.
        for each in sorted((each for each in drawn if each.size == size), key=lambda each: each.is_base):
            if key == LOSS and not each.is_loss_comparable:
                # The other lines keep their colors.
                lines[each.name] = [], []
                unlisted.append(each.name)
                continue
            curve = each.curve(key)
            means = np.array([fmean(values) for values in curve.values()])
            spreads = np.array([stdev(values) if len(values) > 1 else 0.0 for values in curve.values()])
            lines[each.name] = [100 * step / each.planned.updates for step in curve], means
            bands[each.name] = means - spreads, means + spreads
        label = "loss" if key == LOSS else metric.label
        title = f"{label}, size {size}" if len(sizes) > 1 else label
        bases = tuple(each.name for each in drawn if each.is_base)
        panels.append(
            LinePanel(title, lines, "% of the budget", "", dotted=bases, bands=bands, unlisted=tuple(unlisted))
        )
    return draw_panels(panels, path, title="Validations, mean and standard deviation over seeds")
