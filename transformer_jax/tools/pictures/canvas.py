"""The common style of all plots, and writing PNG without matplotlib's global state."""

import functools
import io
import re
import warnings
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager

from transformer_jax.runtime.atomic_files import write_whole

INK = "#1b2733"
FAINT_INK = "#6b7a89"
HAIRLINE = "#c9d1d9"
LINE_COLORS = ("#1b5a8a", "#d1702a", "#3c8d5a", "#8a4f9e", "#b23a48", "#6b7a89")
# From paper to ink with evenly falling lightness, so that it also prints in gray.
SEQUENTIAL = LinearSegmentedColormap.from_list(
    "ink", ["#ffffff", "#d7e8ef", "#8fc1d4", "#3f8fb5", "#1b5a8a", "#0b2a4f"]
)
DOTS_PER_INCH = 160
MISSING, MOST_SHOWN = r"Glyph (\d+) .*missing from font", 20
# The first font that has a letter draws it; fonts of Linux distributions, then of macOS and Windows.
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
    """Returns a font of ``size`` points that has umlauts, and other scripts where this machine has a font for them."""
    installed = set(fontManager.get_font_names())
    return FontProperties(family=[name for name in FONT_FAMILIES if name in installed], size=size, weight=weight)


def blank_figure(width: float, height: float) -> Figure:
    """Returns a white figure of ``width`` x ``height`` inches."""
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")


def add_panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Returns new axes placed in inches from the figure's upper left corner."""
    figure_width, figure_height = figure.get_size_inches()
    bottom = figure_height - top - height
    return figure.add_axes((left / figure_width, bottom / figure_height, width / figure_width, height / figure_height))


def style_axes(axes: Axes, x_label: str, y_label: str = "") -> None:
    """Names the axes; a faint grid, no ticks, and only the left and lower side of the frame."""
    axes.set_xlabel(x_label, fontproperties=font(8), color=FAINT_INK)
    axes.set_ylabel(y_label, fontproperties=font(8), color=FAINT_INK)
    axes.grid(color=HAIRLINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=0, labelcolor=FAINT_INK, labelsize=8, labelfontfamily=FONT_FAMILIES[0])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(HAIRLINE)


def frame(axes: Axes, linewidth: float | None = None) -> None:
    """A hairline frame without ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
        if linewidth:
            spine.set_linewidth(linewidth)


def add_title(figure: Figure, title: str, points: int | float = 12) -> None:
    """Writes the title into the figure's upper left corner, its dollar signs as they are."""
    width, height = figure.get_size_inches()
    margin = 0.014 * points
    text = figure.text(margin / width, 1 - margin / height, title, color=INK, va="top", parse_math=False)
    text.set_fontproperties(font(points, weight="bold"))


def write_png(figure: Figure, path: str | Path) -> Path:
    """Writes the figure, the same bytes for the same figure, making missing folders; returns the path. A link is replaced.

    A path that ends in ``.pdf`` or ``.svg`` is written in that format. Characters without a font on this machine are drawn as
    boxes, and named in a UserWarning.
    """
    path, content = Path(path), io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=MISSING, category=UserWarning)
        if path.suffix == ".pdf":
            FigureCanvasPdf(figure).print_pdf(content, metadata={"CreationDate": None})
        elif path.suffix == ".svg":
            FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None})
        else:
            FigureCanvasAgg(figure).print_png(content, metadata={"Software": None})
    found = [(re.match(MISSING, str(each.message)), each) for each in caught]
    for each in [other for glyph, other in found if not glyph]:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing := "".join(dict.fromkeys(chr(int(glyph[1])) for glyph, _ in found if glyph)):
        shown = missing[:MOST_SHOWN] + ("..." if len(missing) > MOST_SHOWN else "")
        remedy = "install one that has them, such as the packages fonts-noto-core and fonts-noto-cjk"
        warnings.warn(f"{path}: no font here has {shown}: drawn as boxes; {remedy}", stacklevel=2)
    write_whole(path, content.getvalue())
    return path
