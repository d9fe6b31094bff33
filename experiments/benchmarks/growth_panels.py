"""A panel of what was measured (solid) beside what was expected (dashed), on logarithmic scales."""

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, NullLocator

from transformer_jax.visualization import canvas


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
