"""Draws the figures of the theory on these pages, and prints numbers that verify them.

    python docs/theory_figures.py NAME [--config=RECIPE] [--output=FILE]

positions: the sinusoids of the recipe's width, their dot products, and a shift as a matrix (Vaswani
et al. 2017, section 3.5). scaling: scores with and without division by sqrt(d_k) (section 3.2.1,
footnote 4); it needs no recipe. masks: the masks of short sentences of the recipe, padded and
packed (section 3.2.3). smoothing: the target, loss and gradient of the recipe's label smoothing
(section 5.4; Szegedy et al. 2016, section 7).
"""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError, ExperimentConfig, resolve
from transformer_jax.data.batches import token_rows
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.tools.pictures import canvas
from transformer_jax.tools.pictures.attention_maps import visible_piece
from transformer_jax.tools.pictures.panels import BOTTOM, LEFT, LinePanel, Panel, draw_panels
from transformer_jax.training.losses import label_smoothed_cross_entropy

SHOWN_SHIFT, SHOWN_WIDTH, SHOWN_POSITIONS = 5, 32, 100
# Slow sinusoids are nearly constant over a few hundred positions, so singular values below this
# share of the largest are noise.
RANK_TOLERANCE = 1e-10
KEY_SIZES, KEYS = tuple(2**power for power in range(11)), 32
PADDING, READ = "-", 64
CLASSES = 8
LETTER_INCHES = 0.075

Drawing = tuple[str, list[Panel], list[str]]
"""The title of a figure, its panels, and the lines to print."""


@dataclass(frozen=True)
class MatrixPanel:
    """A matrix [R, C] as colored cells, symmetric around 0; with names, from 0 to 2, and numbers in
    the cells.
    """

    title: str
    matrix: np.ndarray
    x_label: str = ""
    y_label: str = ""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @property
    def margins(self) -> tuple[float, float]:
        left, bottom = (LETTER_INCHES * max(map(len, names), default=0) + 0.25 for names in (self.rows, self.columns))
        return max(LEFT, left), max(BOTTOM, bottom)

    def draw(self, axes: Axes) -> None:
        limit = 2.0 if self.rows else float(np.abs(self.matrix).max())
        colors, low = (canvas.SEQUENTIAL, 0.0) if self.rows else ("RdBu", -limit)
        axes.imshow(self.matrix, cmap=colors, vmin=low, vmax=limit, aspect="auto", interpolation="nearest")
        canvas.style_axes(axes, self.x_label, self.y_label)
        axes.grid(False)
        canvas.name_cells(axes, self.rows, self.columns, points=7.5)
        for (row, column), value in np.ndenumerate(self.matrix if self.rows else []):
            axes.text(column, row, f"{value}", ha="center", va="center", fontproperties=canvas.font(7))


def shift_matrix(shift: int, d_model: int) -> np.ndarray:
    """Return the matrix M_k [D, D] with PE(p + k) = M_k PE(p) for all p: it rotates each pair (sin,
    cos) by the angle k w_i.

    It follows from sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b - sin a sin
    b.
    """
    sine, cosine = sinusoid_table(shift + 1, d_model, np.float64)[shift].reshape(-1, 2).T
    matrix = np.zeros((d_model, d_model))
    even, odd = np.arange(0, d_model, 2), np.arange(1, d_model, 2)
    matrix[even, even] = matrix[odd, odd] = cosine
    matrix[even, odd], matrix[odd, even] = sine, -sine
    return matrix


def shift_errors(d_model: int, length: int = 256, shifts: int = 128) -> dict[str, np.ndarray]:
    """Return the largest errors [K] of PE(p + k) = M_k PE(p) at ``length`` positions for k = 1,
    ..., ``shifts``, in float64.

    Of ``shift_matrix``, and of a least-squares matrix fitted to the first half of the positions,
    there and at later ones.
    """
    table, half = sinusoid_table(length + shifts, d_model, np.float64), length // 2
    here, inverse, errors = table[:length], np.linalg.pinv(table[:half], rcond=RANK_TOLERANCE), []
    for shift in range(1, shifts + 1):
        there = table[shift : length + shift]
        fitted = np.abs(here @ (inverse @ there[:half]) - there)
        exact = np.abs(here @ shift_matrix(shift, d_model).T - there)
        errors.append((exact.max(), fitted[:half].max(), fitted[half:].max()))
    names = "closed form", "least squares, fitted", "least squares, later"
    return dict(zip(names, np.array(errors).T, strict=True))


def draw_positions(config: ExperimentConfig) -> Drawing:
    d_model = config.model.d_model
    table, matrix = sinusoid_table(256, d_model, np.float64), shift_matrix(SHOWN_SHIFT, d_model)
    found = shift_errors(d_model)
    positions, shifts = np.arange(SHOWN_POSITIONS), np.arange(1, 1 + len(found["closed form"]))
    width, columns = min(SHOWN_WIDTH, d_model), [d_model * eighths // 16 * 2 for eighths in (1, 2, 3, 4)]
    column, product = columns[0], f"M_{SHOWN_SHIFT} PE(p)"
    moved = {
        f"PE(p + {SHOWN_SHIFT})": (positions, table[positions + SHOWN_SHIFT, column]),
        product: (positions, (table[positions] @ matrix.T)[:, column]),
        "PE(p)": (positions, table[positions, column]),
    }
    errors = {name: (shifts, values) for name, values in found.items()}
    errors["1e-5"] = shifts[[0, -1]], np.array([1e-5, 1e-5])
    curves = {f"column {column}": (positions, table[positions, column]) for column in columns}
    dots = {"dot product": (np.arange(len(table)), table @ table[0])}
    panels = [
        MatrixPanel("PE(position, column)", table[positions], "column", "position"),
        LinePanel("Four of its columns", curves, "position", ""),
        LinePanel("PE(p) · PE(p + k), for every p", dots, "k", "", unlisted=tuple(dots)),
        MatrixPanel(f"M_{SHOWN_SHIFT}, first {width} rows and columns", matrix[:width, :width]),
        LinePanel(f"Column {column} shifted by M_{SHOWN_SHIFT}", moved, "position p", "", dotted=(product,)),
        LinePanel("Largest |PE(p + k) - M_k PE(p)|", errors, "k", "", dotted=("1e-5",), y_scale="log"),
    ]
    return "Positional encodings", panels, [f"largest error, {name}: {ys.max():.1e}" for name, ys in found.items()]


def scaling_numbers(key_sizes: Sequence[int] = KEY_SIZES, queries: int = 2000) -> dict[str, np.ndarray]:
    """Means over random queries and keys, whose entries have variance 1, without and with scaling:
    [2, N] for N key sizes.

    The variance of q · k, the entropy of the softmax over the keys in nats, and the Frobenius norm
    of its Jacobian.
    """
    rng = np.random.default_rng(0)
    rows = []
    for size in key_sizes:
        # Each query has its own keys, so all scores are independent.
        dots = np.einsum("qk,qmk->qm", rng.standard_normal((queries, size)), rng.standard_normal((queries, KEYS, size)))
        rows.append([_of_scores(scores) for scores in (dots, dots / np.sqrt(size))])
    return dict(zip(("variance", "entropy", "gradient"), np.transpose(rows, (2, 1, 0)), strict=True))


def _of_scores(scores: np.ndarray) -> tuple[float, float, float]:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    entropy = -np.sum(p * np.log(np.maximum(p, np.finfo(float).tiny)), axis=-1)
    # The Jacobian diag(p) - p pᵀ has the squared norm sum p² - 2 sum p³ + (sum p²)².
    squares = np.sum(p**2, axis=-1)
    gradient = np.sqrt(np.maximum(squares - 2 * np.sum(p**3, axis=-1) + squares**2, 0.0))
    return scores.var(), entropy.mean(), gradient.mean()


def draw_scaling(_: ExperimentConfig) -> Drawing:
    sizes, values = np.asarray(KEY_SIZES), [*scaling_numbers().values()]
    variance, entropy, gradient = (
        {name: (sizes, row) for name, row in zip(("q · k", "q · k / sqrt(d_k)"), rows, strict=True)} for rows in values
    )
    variance["d_k"] = (sizes, sizes.astype(float))
    entropy["uniform: ln M"] = (sizes[[0, -1]], [np.log(KEYS)] * 2)
    panels = [
        LinePanel("Variance of a score", variance, "d_k", "", dotted=("d_k",), x_scale="log2", y_scale="log"),
        LinePanel(f"Entropy, {KEYS} keys", entropy, "d_k", "nats", dotted=("uniform: ln M",), x_scale="log2"),
        LinePanel("Norm of the softmax's Jacobian", gradient, "d_k", "", x_scale="log2", y_scale="log"),
    ]
    lines = [f"{'d_k':>5}  {'variance':>20}  {'entropy':>15}  {'gradient':>15}     each without and with 1/sqrt(d_k)"]
    for size, *pairs in zip(sizes, *(rows.T for rows in values), strict=True):
        (v, scaled_v), (e, scaled_e), (g, scaled_g) = pairs
        lines.append(f"{size:>5}  {v:>11.2f} {scaled_v:>8.2f}  {e:>7.3f} {scaled_e:>7.3f}  {g:>7.4f} {scaled_g:>7.4f}")
    return "Scores of random queries and keys", panels, lines


def padded_and_packed(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Batch, Batch]:
    """Two batches from three pairs of token ids with EOS: one pair per row, padded; and the first
    two packed in one row.
    """

    def side(number: int, count: int, offsets: list[int]) -> Tokens:
        sentences = joined([pair[number] for pair in pairs[:count]])
        filled = [int(sentences.lengths[a:b].sum()) for a, b in itertools.pairwise(offsets)]
        return token_rows(sentences, np.asarray(offsets), max(filled))

    padded, packed = ((3, [0, 1, 2, 3]), (2, [0, 2]))
    return Batch(side(0, *padded), side(1, *padded)), Batch(side(0, *packed), side(1, *packed))


def draw_masks(config: ExperimentConfig) -> Drawing:
    """Take short sentences from the beginning of the validation split."""
    if config.task != "translation":
        raise ConfigError(f"--config: has task={config.task}; this figure takes task=translation")
    tokenizers = TranslationTask.new_tokenizers(config)
    corpus = open_corpus(config.data, config.data_seed, config.parts)
    read = [
        ([*tokenizers.source.encode(pair.source), EOS_ID], [*tokenizers.target.encode(pair.target), EOS_ID])
        for pair in itertools.islice(corpus.pairs(config.data.split_name("validation")), READ)
    ]
    pairs = sorted(read, key=lambda pair: max(map(len, pair)))
    padded, packed = padded_and_packed([*pairs[:2], pairs[len(pairs) // 4 + 1]])
    panels: list[Panel] = []
    lines = []
    for name, batch in (("padded", padded), ("packed", packed)):
        source, target = (_pieces(side, tokenizer) for side, tokenizer in zip(batch, tokenizers, strict=True))
        starts = np.asarray(batch.target.positions[0]) == 0
        shifted = ["<s>" if starts[index] else target[index - 1] for index in range(len(target))]
        inputs = [PADDING if own == PADDING else before for own, before in zip(target, shifted, strict=True)]
        axes = {"encoder": (source, source), "decoder, causal": (target, inputs), "cross": (target, source)}
        asks, answers = batch.target.segments, batch.source.segments
        masks = SentenceMask(answers, answers), SentenceMask(asks, asks, is_causal=True), SentenceMask(asks, answers)
        for (kind, (rows, columns)), cells in zip(axes.items(), masks, strict=True):
            mask = np.asarray(cells.array())[0].astype(int)
            panels.append(MatrixPanel(f"{name}: {kind}", mask, "", "", rows, columns))
            lines.append(f"{name:<7} {kind:<16} {mask.sum():>4} of {mask.size:>4} pairs may attend")
    return "Masks: rows are queries, columns are keys; 1 may attend, - is padding", panels, lines


def _pieces(tokens: Tokens, tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of the first row."""
    pieces = tokenizer.pieces(np.asarray(tokens.ids[0]).tolist())
    return [
        PADDING if segment == 0 else "</s>" if ids == EOS_ID else visible_piece(piece)
        for piece, ids, segment in zip(pieces, tokens.ids[0], tokens.segments[0], strict=True)
    ]


def draw_smoothing(config: ExperimentConfig) -> Drawing:
    """Take the loss used in training at logits that give the label, class 0, a probability from
    0.001 to 0.9999.

    The other classes are equally probable. The target is computed from the gradient, which is
    softmax(z) - q'.
    """
    probability = np.append(np.linspace(0.001, 0.999, 999), 0.9999)
    rest = np.repeat(np.log((1 - probability) / (CLASSES - 1))[:, None], CLASSES - 1, axis=1)
    logits = jnp.asarray(np.concatenate([np.log(probability)[:, None], rest], axis=1), jnp.float32)

    def loss(logits_V: jax.Array, eps: float | None) -> jax.Array:
        label, weight = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), jnp.float32)
        return label_smoothed_cross_entropy(logits_V[None, None], label, weight, eps).loss

    smoothing, classes = config.training.label_smoothing, np.arange(CLASSES)
    targets, losses, gradients = {}, {}, {}
    for name, eps in ((f"smoothing {smoothing:g}", smoothing), ("none", None)):
        values, slopes = map(np.asarray, jax.vmap(jax.value_and_grad(partial(loss, eps=eps)))(logits))
        targets[name] = classes, np.exp(logits[0]) - slopes[0]
        losses[name], gradients[name] = (probability, values), (probability, slopes[:, 0])
    (_, target), *_ = targets.values()
    (_, smoothed), *_ = losses.values()
    gradients["zero"] = np.array([0, 1]), np.array([0, 0])
    x = "probability that the model gives the label"
    panels = [
        LinePanel(f"Target distribution, V = {CLASSES}", targets, "class; the label is 0", "probability", marks="o"),
        LinePanel("Loss", losses, x, "nats"),
        LinePanel("Its derivative in the label's logit", gradients, x, "", dotted=("zero",), unlisted=("zero",)),
    ]
    best, predicted = probability[smoothed.argmin()], 1 - smoothing + smoothing / CLASSES
    lines = [
        f"smoothing {smoothing:g}: target {target[0]:.4f} for the label, {target[1]:.4f} for each other class",
        f"lowest loss {smoothed.min():.4f} nats, at probability {best:.4f} of the label; 1 - eps + eps/V = {predicted:.4f}",
    ]
    return "Label smoothing", panels, lines


FIGURES = {"positions": draw_positions, "scaling": draw_scaling, "masks": draw_masks, "smoothing": draw_smoothing}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=FIGURES)
    parser.add_argument("--config", default="", help="recipe (default: transformer_base, and quickstart for masks)")
    parser.add_argument("--output", default="", help="default: figure-NAME.png")
    options = parser.parse_args(arguments)
    config = resolve(options.config or ("quickstart" if options.name == "masks" else "transformer_base"))
    title, panels, lines = FIGURES[options.name](config)
    file = draw_panels(panels, options.output or f"figure-{options.name}.png", title=title)
    print("\n".join([*lines, str(file)]))


if __name__ == "__main__":
    main()
