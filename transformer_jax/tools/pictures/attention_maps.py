"""Attention weights as a grid of heat maps: a row of panels a layer, a column of panels a head."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, HAIRLINE, INK, font

Pieces = Sequence[str] | Mapping[str, Sequence[str]]

# from paper to ink, of evenly falling lightness, so that it also prints in gray
COLORS = LinearSegmentedColormap.from_list("ink", ["#ffffff", "#d7e8ef", "#8fc1d4", "#3f8fb5", "#1b5a8a", "#0b2a4f"])
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
SPACE_MARK = "\N{OPEN BOX}"
MEAN = "mean of heads"

PANEL_INCHES = 1.9
MIN_CELL_INCHES, MAX_CELL_INCHES = 0.125, 0.34
GAP = 0.14
POINTS_PER_INCH = 72
WIDE_LETTER = 1.65


@dataclass(frozen=True)
class Layout:
    """Sizes in inches, from the numbers of panels and tokens."""

    cell: float
    panel_width: float
    panel_height: float
    left: float
    top: float
    bottom: float
    right: float
    row_gap: float
    num_rows: int
    num_columns: int
    label_points: float
    heading_scale: float

    @property
    def width(self) -> float:
        return self.left + self.num_columns * (self.panel_width + GAP) - GAP + self.right

    @property
    def height(self) -> float:
        return self.top + self.num_rows * (self.panel_height + self.row_gap) - self.row_gap + self.bottom


def draw_attention(
    weights: Mapping[str, np.ndarray] | np.ndarray,
    row_pieces: Pieces,
    column_pieces: Pieces,
    path: str | Path,
    *,
    title: str = "",
    with_mean: bool = True,
) -> Path:
    """Draws attention weights as a PNG and returns its path (figures 3 to 5 of the paper; figure 3 of Bahdanau et al.
    2015).

    ``weights``: arrays ``[H, Q, M]`` by the name of their layer, from the first layer down, or a single ``[Q, M]``;
    between 0 and 1. ``row_pieces`` are the ``Q`` querying tokens (target), written on the left, ``column_pieces`` the
    ``M`` attended ones (source), written below; by layer where layers differ. One color scale, 0 to 1, for all
    panels. ``with_mean`` adds the mean over the heads as a last column. Raises ValueError, naming the shapes, where
    weights and pieces do not fit.
    """
    layers = _checked_layers(weights)
    rows = {name: _pieces_of(row_pieces, name, layers[name].shape, axis=1) for name in layers}
    columns = {name: _pieces_of(column_pieces, name, layers[name].shape, axis=2) for name in layers}
    panels = {name: _panels(layer, with_mean) for name, layer in layers.items()}
    repeats_columns = len({tuple(pieces) for pieces in columns.values()}) > 1
    layout = _lay_out(panels, rows, columns, title=title, repeats_columns=repeats_columns)
    figure = canvas.blank_figure(layout.width, layout.height)
    for row, name in enumerate(panels):
        is_last = row == layout.num_rows - 1
        for column, (heading, matrix) in enumerate(panels[name]):
            left = layout.left + column * (layout.panel_width + GAP)
            top = layout.top + row * (layout.panel_height + layout.row_gap)
            axes = canvas.add_panel(figure, left, top, layout.panel_width, layout.panel_height)
            axes.imshow(matrix, cmap=COLORS, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            _style(axes)
            _label(axes, "y", rows[name] if column == 0 else [], layout)
            _label(axes, "x", columns[name] if is_last or repeats_columns else [], layout)
            if row == 0 and heading:
                color, weight = (INK, "bold") if heading == MEAN else (FAINT_INK, "normal")
                heading_font = font(8.5 * layout.heading_scale, weight=weight)
                axes.set_title(heading, fontproperties=heading_font, color=color, pad=5)
        _name_layer(figure, layout, row, name)
    if title:
        canvas.add_title(figure, title, points=12 * layout.heading_scale)
    _draw_scale(figure, layout)
    return canvas.write_png(figure, path)


def visible_piece(piece: str) -> str:
    """Returns a token as an axis shows it: the word start of sentencepiece as an open box, unprintables escaped."""
    shown = piece.replace(WORD_START, SPACE_MARK).replace(" ", SPACE_MARK)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in shown)


def _checked_layers(weights: Mapping[str, np.ndarray] | np.ndarray) -> dict[str, np.ndarray]:
    if not isinstance(weights, Mapping):
        weights = {"": weights}
    layers = {name: np.asarray(layer, np.float32) for name, layer in weights.items()}
    layers = {name: layer[None] if layer.ndim == 2 else layer for name, layer in layers.items()}
    if not layers:
        raise ValueError("there are no attention weights to draw")
    for name, layer in layers.items():
        if layer.ndim != 3 or 0 in layer.shape:
            raise ValueError(f"weights {name!r} have shape {layer.shape}; they must be [heads, Q, M] or [Q, M]")
    return layers


def _pieces_of(pieces: Pieces, name: str, shape: tuple[int, ...], *, axis: int) -> list[str]:
    side = "row_pieces" if axis == 1 else "column_pieces"
    if isinstance(pieces, Mapping):
        if name not in pieces:
            raise ValueError(f"{side} has no layer {name!r}, only {', '.join(map(repr, pieces))}")
        pieces = pieces[name]
    if len(pieces) != shape[axis]:
        problem = f"{len(pieces)} {side} do not fit weights {name!r} of shape {shape}"
        raise ValueError(f"{problem}; axis {axis} has {shape[axis]}")
    return [visible_piece(piece) for piece in pieces]


def _panels(layer: np.ndarray, with_mean: bool) -> list[tuple[str, np.ndarray]]:
    """Returns (heading, matrix) of every panel in a row."""
    num_heads = layer.shape[0]
    panels = [(f"head {head + 1}" if num_heads > 1 else "", layer[head]) for head in range(num_heads)]
    return [*panels, (MEAN, layer.mean(axis=0))] if with_mean and num_heads > 1 else panels


def _lay_out(
    panels: Mapping[str, list[tuple[str, np.ndarray]]],
    rows: Mapping[str, list[str]],
    columns: Mapping[str, list[str]],
    *,
    title: str,
    repeats_columns: bool,
) -> Layout:
    # a big grid is shown at a smaller scale: headings grow with the grid, token labels with the cells
    most_rows = max(len(pieces) for pieces in rows.values())
    most_columns = max(len(pieces) for pieces in columns.values())
    num_columns = max(len(row) for row in panels.values())
    wanted = PANEL_INCHES * (2.4 if num_columns * len(panels) == 1 else 1.0)
    cell = min(max(wanted / max(most_rows, most_columns), MIN_CELL_INCHES), MAX_CELL_INCHES)
    points = min(max(cell * POINTS_PER_INCH * 0.72, 5.5), 9.5)
    letter = points * 0.62 / POINTS_PER_INCH
    left_labels = letter * max(_letters(piece) for pieces in rows.values() for piece in pieces)
    bottom_labels = letter * max(_letters(piece) for pieces in columns.values() for piece in pieces)
    panel_width, panel_height = cell * most_columns, cell * most_rows
    scale = min(max(num_columns * panel_width / 12, 1.0), 2.0)
    return Layout(
        cell=cell,
        panel_width=panel_width,
        panel_height=panel_height,
        left=left_labels + 0.2 + 0.3 * scale * any(panels),
        top=scale * (0.42 * bool(title) + (0.36 if num_columns > 1 else 0.16)),
        bottom=bottom_labels + 0.22,
        right=0.55 + 0.3 * scale,
        row_gap=bottom_labels + 0.25 if repeats_columns else GAP,
        num_rows=len(panels),
        num_columns=num_columns,
        label_points=points,
        heading_scale=scale,
    )


def _letters(piece: str) -> float:
    """The width of a piece in those of Latin letters; one of Chinese or Japanese is as wide as it is high."""
    return sum(WIDE_LETTER if unicodedata.east_asian_width(letter) in "WF" else 1.0 for letter in piece)


def _style(axes: Axes) -> None:
    """A hairline frame and no ticks: the cells are the ruler."""
    axes.tick_params(length=0, pad=2.5)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
        spine.set_linewidth(0.6)


def _label(axes: Axes, axis: str, pieces: list[str], layout: Layout) -> None:
    if not pieces:
        return
    set_ticks, rotation = (axes.set_xticks, 90) if axis == "x" else (axes.set_yticks, 0)
    label_font = font(layout.label_points)
    set_ticks(np.arange(len(pieces)), labels=pieces, rotation=rotation, color=INK, fontproperties=label_font)
    for label in (axes.get_xticklabels if axis == "x" else axes.get_yticklabels)():
        label.set_parse_math(False)  # a dollar sign is a token here


def _name_layer(figure: Figure, layout: Layout, row: int, name: str) -> None:
    middle = layout.top + row * (layout.panel_height + layout.row_gap) + layout.panel_height / 2
    x, y = 0.22 * layout.heading_scale / layout.width, 1 - middle / layout.height
    words = figure.text(x, y, name, rotation=90, ha="center", va="center", color=FAINT_INK, parse_math=False)
    words.set_fontproperties(font(8.5 * layout.heading_scale))


def _draw_scale(figure: Figure, layout: Layout) -> None:
    """The color bar, beside the first row of panels."""
    scale = layout.heading_scale
    height = min(layout.panel_height, 1.6 * scale)
    left = layout.width - layout.right + 0.18
    axes = canvas.add_panel(figure, left, layout.top, 0.1 * scale, height)
    axes.imshow(np.linspace(1, 0, 256)[:, None], cmap=COLORS, vmin=0.0, vmax=1.0, aspect="auto", extent=(0, 1, 0, 1))
    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.set_yticks([0.0, 0.5, 1.0], labels=["0", "0.5", "1"], fontproperties=font(7.5 * scale), color=FAINT_INK)
    axes.tick_params(length=2, width=0.6, color=HAIRLINE, pad=2)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
        spine.set_linewidth(0.6)
