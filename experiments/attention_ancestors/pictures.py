"""The pictures of this experiment."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from transformer_jax.tools.explorer.soft_alignment import SoftAlignment
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import FAINT_INK, HAIRLINE, INK, LINE_COLORS, font

CELL = 0.17
MARGIN, TITLE = 0.15, 0.3
LETTER = 0.06
# Panels in a row of the picture.
ABREAST = 4


def draw_lines(lines: dict[str, list[dict]], path: Path) -> None:
    """BLEU against the length of the source, a line a model."""
    figure = canvas.blank_figure(7.2, 3.8)
    axes = canvas.add_panel(figure, 0.6, 0.5, 4.2, 2.7)
    for number, (name, points) in enumerate(lines.items()):
        color = LINE_COLORS[number % len(LINE_COLORS)]
        style = "-" if number < len(LINE_COLORS) else "--"
        places = range(len(points))
        axes.plot(places, [point["bleu"] for point in points], style, color=color, marker="o", markersize=3, label=name)
    points = next(iter(lines.values()))
    axes.set_xticks(range(len(points)), [f"{point['from']}-{point['to']}\n{point['sentences']}" for point in points])
    axes.set_xlabel("words of the source, and sentences of that length", fontproperties=font(8), color=FAINT_INK)
    axes.set_ylabel("BLEU", fontproperties=font(8), color=FAINT_INK)
    axes.tick_params(length=0, labelcolor=FAINT_INK, labelsize=7.5)
    axes.grid(axis="y", color=HAIRLINE, linewidth=0.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(HAIRLINE)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), prop=font(7.5), frameon=False, labelcolor=INK)
    canvas.add_title(figure, "BLEU and the length of the sentence", 10)
    canvas.write_png(figure, path)


def draw_alignments(panels: Sequence[tuple[str, SoftAlignment]], path: Path) -> None:
    """Weights of the same pair in several models, four beside each other: a row for each target
    piece, a column for each source piece.
    """
    beside, above = (
        LETTER * max(len(piece) for _, alignment in panels for piece in getattr(alignment, side)) + 0.1
        for side in ("target_pieces", "source_pieces")
    )
    rows, columns = (max(alignment.weights.shape[axis] for _, alignment in panels) for axis in (0, 1))
    width, height = beside + columns * CELL + MARGIN, TITLE + above + rows * CELL + MARGIN
    figure = canvas.blank_figure(MARGIN + width * min(len(panels), ABREAST), height * math.ceil(len(panels) / ABREAST))
    for number, (name, alignment) in enumerate(panels):
        left, top = MARGIN + width * (number % ABREAST) + beside, height * (number // ABREAST)
        draw_weights(canvas.add_panel(figure, left, top + TITLE + above, columns * CELL, rows * CELL), alignment)
        words = figure.text(left / figure.get_figwidth(), 1 - (top + 0.03) / figure.get_figheight(), name, va="top")
        words.set_fontproperties(font(9, weight="bold"))
        words.set_color(INK)
    canvas.write_png(figure, path)


def draw_weights(axes: Axes, alignment: SoftAlignment) -> None:
    """One model's."""
    axes.imshow(alignment.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    axes.set_xticks(range(alignment.weights.shape[1]), alignment.source_pieces, rotation=90)
    axes.set_yticks(range(alignment.weights.shape[0]), alignment.target_pieces)
    axes.tick_params(length=0, labelcolor=INK, labelsize=6.5, pad=1)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)


def draw_totals(results: dict[str, dict], path: Path) -> None:
    """BLEU, perplexity and tokens per second of every model, a panel each."""
    names = list(results)
    height = 0.24 * len(names)
    figure = canvas.blank_figure(9.6, height + 1.1)
    columns = (("bleu", "BLEU", "{:.1f}"), ("perplexity", "perplexity", "{:.2f}"))
    columns += (("target_tokens_per_second", "target tokens/s of training", "{:,.0f}"),)
    for number, (key, title, form) in enumerate(columns):
        axes = canvas.add_panel(figure, 2.0 + 2.5 * number, 0.75, 1.9, height)
        values = [results[name][key] for name in names]
        axes.barh(range(len(names)), values, color=LINE_COLORS[0], height=0.6)
        for place, value in enumerate(values):
            axes.text(value, place, f" {form.format(value)}", va="center", fontproperties=font(7.5), color=INK)
        axes.set_yticks(range(len(names)), names if number == 0 else [""] * len(names))
        axes.set_xticks([])
        axes.set_title(title, loc="left", fontproperties=font(8.5, weight="bold"), color=INK, pad=4)
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK, labelsize=8)
        for spine in axes.spines.values():
            spine.set_visible(False)
    canvas.add_title(figure, "The same training time for each", 10)
    canvas.write_png(figure, path)
