"""Draws pictures of these pages from the tables of experiments, from an example, and from the
folders of the package.

python docs/page_figures.py    # into docs/figures
"""

import re
import runpy
from html import escape
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.canvas import INK, LINE_COLORS, font
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
Rows = list[dict[str, str]]


def table(file: str, column: str) -> Rows:
    """Return the rows of the first table of a Markdown file that has a column of this name."""
    lines = (ROOT / file).read_text(encoding="utf-8").split("\n")
    start = next(index for index, line in enumerate(lines) if f"| {column} |" in line)
    cells = [[cell.strip(" *") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[start:]]
    end = next((index for index, row in enumerate(cells) if not row), len(cells))
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:end]]


def draw_bits() -> None:
    """Bits per byte of the language models, n-grams and xz in experiments/language_model."""
    rows = sorted(table("experiments/language_model/README.md", "bits per byte"), key=lambda row: row["bits per byte"])
    names = [re.sub(r"[`*]|, 4,000 updates|, 3.4 million parameters", "", row["model"]) for row in rows]
    height = 0.3 * len(rows)
    figure = canvas.blank_figure(8.4, height + 0.75)
    axes = canvas.add_panel(figure, 3.5, 0.5, 4.4, height)
    canvas.frame(axes)
    axes.spines[:].set_visible(False)
    for index, row in enumerate(rows):
        value, is_own = float(row["bits per byte"]), "Transformer" in row["model"]
        axes.barh(index, value, color=LINE_COLORS[0] if is_own else "#c9d1d9", height=0.62)
        weight = "bold" if is_own else "normal"
        axes.text(
            value + 0.03, index, row["bits per byte"], va="center", color=INK, fontproperties=font(8.5, weight=weight)
        )
        axes.text(
            -0.05, index, names[index], va="center", ha="right", color=INK, fontproperties=font(8.5, weight=weight)
        )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 3)
    canvas.add_title(figure, "Bits per byte of held-out Wikipedia: less is better")
    canvas.write_png(figure, FIGURES / "bits.png")


def draw_trials() -> None:
    """Score against each setting of the complete trials in experiments/tuned_recipe."""
    rows = [row for row in table("experiments/tuned_recipe/results/search.md", "state") if row["state"] == "complete"]
    names = [name for name in rows[0] if re.match(r"(model|optimizer|training)\.", name)]
    panels = [
        LinePanel(
            name,
            {"trial": [[float(row[name]) for row in rows], [float(row["validation/bleu"]) for row in rows]]},
            "",
            "validation/bleu",
            marks="o",
            unlisted=("trial",),
        )
        for name in names
    ]
    path = ROOT / "experiments" / "tuned_recipe" / "results" / "trials.png"
    draw_panels(panels, path, title=f"Score of the {len(rows)} complete trials against each setting")


def draw_extending() -> None:
    """Draw the bias that examples/kerple.py adds to scores, and the weights of equal scores."""
    with_bias = runpy.run_path(str(ROOT / "examples" / "kerple.py"))["with_bias"]
    distance, rates = np.arange(-20, 1), (0.1, 0.5, 2.0)
    biases = {}
    for rate in rates:
        raw = jnp.log(jnp.expm1(jnp.array([[1.0], [rate]])))  # Of one head.
        at = SimpleNamespace(distance=jnp.asarray(distance)[None, None])
        bias = with_bias(raw, jnp.zeros((1, 1, 1, len(distance))), at)
        biases[f"r2 = {rate}"] = np.asarray(bias)[0, 0, 0]
    weights = {name: np.exp(bias) / np.exp(bias).sum() for name, bias in biases.items()}
    panels = [
        LinePanel(
            title, {name: (distance, line) for name, line in lines.items()}, "position of the key - of the query", ""
        )
        for title, lines in (
            ("Added to a score: -log(1 + r2 |distance|)", biases),
            ("Weights of equal scores", weights),
        )
    ]
    draw_panels(panels, FIGURES / "extending.png", title="examples/kerple.py at three rates")


# From the highest floor; the names of a floor do not use each other, except that models and
# training use layers.
FLOORS = (
    (("tools", "study, explorer, pictures, conform ...: each can be taken away"),),
    (("commands, api", "the command line; three lines of Python"),),
    (("runs", "the trainer, its hooks, logs"),),
    (("tasks", "translation and language models to train; a trained run"),),
    (("checkpoints", "stored states"),),
    (("run_directory", "names of files, steps, the choice of a checkpoint"),),
    (
        ("models, layers", "Transformer, RNN"),
        ("training", "loss, update"),
        ("decoding", "search"),
        ("data", "text to batches"),
        ("evaluation", "scores"),
    ),
    (("runtime", "processes, devices"),),
    (("config", "settings, recipes"),),
    (("registry, files", "parts by name; paths on disks and in buckets"),),
    (("array_types, precision, errors ...", "what all share"),),
)
ASIDE = ("kit", "uses models, layers, training", 5)
WIDTH, STEP, HEIGHT, GAP, ASIDE_WIDTH = 720, 44, 36, 8, 190


def draw_floors() -> None:
    """Draw the folders of the package as floors."""
    parts = []
    for number, floor in enumerate(FLOORS):
        wide = (WIDTH - GAP * (len(floor) - 1)) / len(floor)
        for index, (name, words) in enumerate(floor):
            parts.append(box(GAP + index * (wide + GAP), GAP + STEP * number, wide, name, words))
    name, words, number = ASIDE
    parts.append(box(WIDTH + 4 * GAP, GAP + STEP * number, ASIDE_WIDTH, name, words, below=True))
    style = (
        "rect{fill:#eef4f7;stroke:#c9d1d9}text{font:13px DejaVu Sans,Noto Sans,sans-serif;fill:#1b2733}"
        ".name{font-weight:bold}.words{fill:#5d6b79;font-size:11px}"
    )
    size = f'viewBox="0 0 {WIDTH + ASIDE_WIDTH + 5 * GAP} {GAP + STEP * len(FLOORS)}"'
    body = '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>' + "".join(parts)
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{body}</svg>\n'
    (FIGURES / "floors.svg").write_text(svg, encoding="utf-8")


def box(x: float, y: float, width: float, name: str, words: str, *, below: bool = False) -> str:
    """Return a box with a name, and words at its right end, or below the name where it is
    narrow.
    """
    below = below or width < WIDTH / 2
    at = f'x="{x + 10:g}" y="{y + 29:g}"' if below else f'x="{x + width - 10:g}" y="{y + 23:g}" text-anchor="end"'
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="5"/>'
        f'<text x="{x + 10:g}" y="{y + (15 if below else 23):g}" class="name">{escape(name)}</text>'
        f'<text {at} class="words">{escape(words)}</text>'
    )


if __name__ == "__main__":
    draw_bits()
    draw_trials()
    draw_extending()
    draw_floors()
