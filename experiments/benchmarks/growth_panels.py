"""Panels of what was measured (solid) beside what was expected (dashed), on logarithmic scales."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.ticker import FuncFormatter, NullLocator

from transformer_jax.tools.pictures import canvas

WIDTH, HEIGHT, LEFT, BOTTOM = 2.5, 2.0, 0.75, 0.75


class Growth(NamedTuple):
    """A quantity, measured and expected, for each value along an axis."""

    label: str
    values: Sequence[int]
    found: Sequence[float]
    wanted: Sequence[float]


def draw_growth(columns: Mapping[str, Sequence[Growth]], title: str, path: Path, gap: float) -> None:
    """A column of panels for each axis, the first at the bottom, ``gap`` inches between columns."""
    figure = canvas.blank_figure(LEFT + len(columns) * (WIDTH + gap), 6.1)
    for column, (axis, panels) in enumerate(columns.items()):
        for number, growth in enumerate(panels):
            place = LEFT + column * (WIDTH + gap), BOTTOM + number * (HEIGHT + BOTTOM), WIDTH, HEIGHT
            panel = add_growth(figure, place, growth.values, growth.found, growth.wanted)
            if column == 0:
                panel.set_ylabel(growth.label, fontproperties=canvas.font(8.5), color=canvas.INK)
            panel.set_xlabel(axis, fontproperties=canvas.font(8.5), color=canvas.INK)
    canvas.add_title(figure, title)
    canvas.write_png(figure, path)


def add_growth(
    figure: Any,
    place: tuple[float, float, float, float],
    values: Sequence[int],
    found: Sequence[float],
    wanted: Sequence[float],
) -> Any:
    """Adds a panel at ``place``, inches: left, bottom, width, height."""
    panel = canvas.add_panel(figure, *place)
    panel.plot(values, wanted, "--", color=canvas.FAINT_INK, linewidth=1.0)
    panel.plot(values, found, "o-", color="#1b5a8a", linewidth=1.4, markersize=3.5)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log", base=2)
    # Not so near that a change of a few per cent looks like growth.
    panel.set_ylim(min(*found, *wanted) / 1.5, 1.5 * max(*found, *wanted))
    panel.set_xticks(values)
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.3g}"))
    panel.grid(color=canvas.HAIRLINE, linewidth=0.5)
    panel.tick_params(length=0, labelcolor=canvas.FAINT_INK, labelsize=7.5)
    for spine in panel.spines.values():
        spine.set_color(canvas.HAIRLINE)
    return panel
