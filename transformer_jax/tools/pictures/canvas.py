"""The house style of all plots, and pictures without matplotlib's global state.

The contrast with the background is at least 4.5 for text and 3 for lines (WCAG 2.2, 1.4.3, 1.4.11).
"""

import functools
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ticker import FuncFormatter

from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import as_path

INK = "#1b2733"
FAINT_INK = "#5d6b79"
HAIRLINE = "#c9d1d9"
LINE_COLORS = ("#1b5a8a", "#d1702a", "#3c8d5a", "#8a4f9e", "#b23a48", "#6b7a89")
# Colors repeat with the next style.
LINE_STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
MARK = LINE_COLORS[1]
# Lightness falls evenly from white to ink, so it also prints in gray.
SEQUENTIAL = LinearSegmentedColormap.from_list(
    "ink", ["#ffffff", "#d7e8ef", "#8fc1d4", "#3f8fb5", "#1b5a8a", "#0b2a4f"]
)
# Negative values are orange, and positive ones as in SEQUENTIAL.
DIVERGING = LinearSegmentedColormap.from_list(
    "signed", ["#6b3208", "#d1702a", "#f3cfae", "#ffffff", "#8fc1d4", "#1b5a8a", "#0b2a4f"]
)
DOTS_PER_INCH = 160
# Of a side. Agg draws less than 65,536, and 30,000 on both sides take 3.6 GB.
MOST_PIXELS = 30_000
# Metadata that would differ between equal figures.
CHANGING = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
# The warning of matplotlib.
MISSING = r"Glyph (\d+) .*missing from font"
# Missing characters in our warning.
MOST_SHOWN = 20
# The first font with a letter draws it: fonts of Linux distributions, of macOS, of Windows.
FONT_FAMILIES = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans JP"),
    *("Noto Sans SC", "Noto Sans KR", "IPAexGothic", "IPAGothic", "TakaoGothic", "WenQuanYi Zen Hei", "NanumGothic"),
    *("Droid Sans Fallback", "Noto Sans Thai", "Noto Sans Khmer", "Noto Sans Lao", "Noto Sans Myanmar"),
    *("Noto Serif Tibetan", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Loma", "Garuda"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Thonburi", "Yu Gothic", "Microsoft YaHei"),
    *("Malgun Gothic", "Leelawadee UI", "Arial Unicode MS", "Unifont"),
)


@functools.cache
def font(size: int | float, *, weight: str = "normal") -> FontProperties:
    """Return a font of ``size`` points, with all scripts that installed fonts have."""
    installed = set(fontManager.get_font_names())
    return FontProperties(family=[name for name in FONT_FAMILIES if name in installed], size=size, weight=weight)


def blank_figure(width: float, height: float) -> Figure:
    """Return a white figure of ``width`` x ``height`` inches."""
    dots = min(DOTS_PER_INCH, MOST_PIXELS / max(width, height))
    return Figure(figsize=(width, height), dpi=dots, facecolor="white")


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes. Sizes and offsets from the upper left corner of the figure are in inches."""
    figure_width, figure_height = figure.get_size_inches()
    bottom = figure_height - top - height
    return figure.add_axes((left / figure_width, bottom / figure_height, width / figure_width, height / figure_height))


def style_axes(axes: Axes, x_label: str, y_label: str = "") -> None:
    """Label the axes, with a faint grid, without ticks, and with two sides of the frame.

    Large numbers along x are written as 10,000.
    """
    if axes.get_xscale() == "linear" and not axes.xaxis.have_units():
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axes.set_xlabel(x_label, fontproperties=font(8), color=FAINT_INK)
    axes.set_ylabel(y_label, fontproperties=font(8), color=FAINT_INK)
    axes.grid(color=HAIRLINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, labelcolor=FAINT_INK, labelsize=8, labelfontfamily=FONT_FAMILIES[0])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(HAIRLINE)


def frame(axes: Axes, linewidth: float | None = None) -> None:
    """Draw a hairline frame without ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
        if linewidth:
            spine.set_linewidth(linewidth)


def name_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str], points: float) -> None:
    """Name the rows (left) and columns (below) of a matrix, without math parsing."""
    for names, set_ticks, angle in ((rows, axes.set_yticks, 0), (columns, axes.set_xticks, 90)):
        if names:
            set_ticks(range(len(names)), labels=list(names), rotation=angle, fontproperties=font(points), color=INK)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)


def add_title(figure: Figure, title: str, points: int | float = 12) -> None:
    """Write the title into the upper left corner of the figure, without math parsing."""
    width, height = figure.get_size_inches()
    margin = 0.014 * points
    text = figure.text(margin / width, 1 - margin / height, title, color=INK, va="top", parse_math=False)
    text.set_fontproperties(font(points, weight="bold"))


def write_png(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PDF or SVG if ``path`` ends so, else as PNG, and return the path.

    Equal figures give equal PNG and PDF files. Missing folders are created, and a symbolic link is
    replaced. A UserWarning lists characters that no installed font has.
    """
    path, content = as_path(path), io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=MISSING, category=UserWarning)
        ending = path.suffix[1:] if path.suffix in (".pdf", ".svg") else "png"
        figure.savefig(content, format=ending, metadata={CHANGING[ending]: None})
    matches = [(re.match(MISSING, str(warning.message)), warning) for warning in caught]
    for warning in [other for glyph, other in matches if not glyph]:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if missing := "".join(dict.fromkeys(chr(int(glyph[1])) for glyph, _ in matches if glyph)):
        shown = missing[:MOST_SHOWN] + ("..." if len(missing) > MOST_SHOWN else "")
        remedy = "install one that has them, such as the packages fonts-noto-core and fonts-noto-cjk"
        warnings.warn(f"{path}: no installed font has {shown}, drawn as boxes; {remedy}", stacklevel=2)
    write_whole(path, content.getvalue())
    return path
