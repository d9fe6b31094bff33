"""Figures of attention: why scores are divided by sqrt(d_k), and the masks of padded and packed sentences.

Vaswani et al. 2017, sections 3.2.1 (with footnote 4) and 3.2.3.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.plugins import registered
from transformer_jax.data.batches import token_rows
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.modified_attention import AttentionChange
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.pictures.attention_maps import visible_piece
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.panels import LinePanel, MatrixPanel, draw_panels

SPLIT, READ = "validation", 64
PADDING = "-"
KEY_SIZES = tuple(2**power for power in range(11))
QUERIES, KEYS = 2000, 32


class ScalingNumbers(NamedTuple):
    """Means over random queries for each of ``key_sizes`` [N], without and with scaling: [2, N].

    ``variance`` of q · k; ``entropy`` of the softmax over the keys, in nats; ``gradient``: Frobenius norm of its Jacobian.
    """

    key_sizes: np.ndarray
    variance: np.ndarray
    entropy: np.ndarray
    gradient: np.ndarray


def softmax_jacobian_norm(probabilities: np.ndarray) -> np.ndarray:
    """Frobenius norm of diag(p) - p pᵀ, the derivative of the softmax in its scores; p [..., M], result [...].

    Its square is sum p² - 2 sum p³ + (sum p²)².
    """
    squares = np.sum(probabilities**2, axis=-1)
    return np.sqrt(np.maximum(squares - 2 * np.sum(probabilities**3, axis=-1) + squares**2, 0.0))


def scaling_numbers(key_sizes: Sequence[int] = KEY_SIZES, queries: int = QUERIES, keys: int = KEYS) -> ScalingNumbers:
    """Samples queries and keys with independent entries of mean 0 and variance 1."""
    rng = np.random.default_rng(0)
    rows = []
    for size in key_sizes:
        # Each query has its own keys, so all scores are independent.
        dots = np.einsum("qk,qmk->qm", rng.standard_normal((queries, size)), rng.standard_normal((queries, keys, size)))
        rows.append([_of_scores(scores) for scores in (dots, dots / np.sqrt(size))])
    variance, entropy, gradient = np.transpose(rows, (2, 1, 0))
    return ScalingNumbers(np.asarray(key_sizes), variance, entropy, gradient)


def _of_scores(scores: np.ndarray) -> tuple[float, float, float]:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = exponentials / exponentials.sum(axis=-1, keepdims=True)
    entropy = -np.sum(p * np.log(np.maximum(p, np.finfo(float).tiny)), axis=-1)
    return scores.var(), entropy.mean(), softmax_jacobian_norm(p).mean()


def draw_scaling(subject: Subject, path: Path) -> list[str]:
    """Draws variance, entropy and gradient against d_k for random vectors; ``subject`` is not used."""
    del subject
    numbers = scaling_numbers()
    sizes = numbers.key_sizes
    both = ("q · k", "q · k / sqrt(d_k)")

    def lines(values: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {name: (sizes, row) for name, row in zip(both, values, strict=True)}

    variance = lines(numbers.variance) | {"d_k": (sizes, sizes.astype(float))}
    entropy = lines(numbers.entropy) | {"uniform: ln M": (sizes[[0, -1]], [np.log(KEYS)] * 2)}
    panels = [
        LinePanel("Variance of a score", variance, "d_k", "", dotted=("d_k",), x_scale="log2", y_scale="log"),
        LinePanel(f"Entropy, {KEYS} keys", entropy, "d_k", "nats", dotted=("uniform: ln M",), x_scale="log2"),
        LinePanel("Norm of the softmax's Jacobian", lines(numbers.gradient), "d_k", "", x_scale="log2", y_scale="log"),
    ]
    draw_panels(panels, path, title="Scores of random queries and keys")
    table = [f"{'d_k':>5}  {'variance':>20}  {'entropy':>15}  {'gradient':>15}     each without and with 1/sqrt(d_k)"]
    for size, *values in zip(sizes, numbers.variance.T, numbers.entropy.T, numbers.gradient.T, strict=True):
        (v, scaled_v), (e, scaled_e), (g, scaled_g) = values
        table.append(f"{size:>5}  {v:>11.2f} {scaled_v:>8.2f}  {e:>7.3f} {scaled_e:>7.3f}  {g:>7.4f} {scaled_g:>7.4f}")
    return table


def row_masks(batch: Batch) -> list[np.ndarray]:
    """The masks of the Transformer for the first row of ``batch``, boolean, True = may attend.

    Of the encoder [S, S], the decoder [T, T] and the cross attention [T, S].
    """
    source, target = batch.source.segments, batch.target.segments
    masks = SentenceMask(source, source), SentenceMask(target, target, is_causal=True), SentenceMask(target, source)
    return [np.asarray(mask.array())[0] for mask in masks]


def changes_mask(attention: str) -> bool:
    """Whether an attention, or a change of it, has another mask than ``row_masks``."""
    mask_mod = AttentionChange.mask_mod
    return attention == "acausal" or getattr(registered("attention")[attention], "mask_mod", mask_mod) is not mask_mod


def padded_and_packed(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Batch, Batch]:
    """Two batches from three pairs of token ids with EOS: one pair per row, padded; and the first two packed in one row."""

    def side(number: int, count: int, offsets: list[int]) -> Tokens:
        sentences = joined([pair[number] for pair in pairs[:count]])
        filled = [int(sentences.lengths[a:b].sum()) for a, b in itertools.pairwise(offsets)]
        return token_rows(sentences, np.asarray(offsets), max(filled))

    padded, packed = ((3, [0, 1, 2, 3]), (2, [0, 2]))
    return Batch(side(0, *padded), side(1, *padded)), Batch(side(0, *packed), side(1, *packed))


def draw_masks(subject: Subject, path: Path) -> list[str]:
    """Draws the masks of short sentences from the beginning of the validation split."""
    subject.require_translation()
    if subject.config.model.is_recurrent:
        raise ConfigError(f"{subject.name} is recurrent, without these masks; give a Transformer")
    for _, kind, name in subject.config.selections:
        if kind == "attention" and changes_mask(name):
            raise ConfigError(f"{subject.name}: model.attention={name} has other masks; give a model without it")
    tokenizers = subject.trained.tokenizers if subject.restore else TranslationTask.new_tokenizers(subject.config)
    padded, packed = padded_and_packed(_short_pairs(subject, tokenizers))
    panels, lines = [], []
    for name, batch in (("padded", padded), ("packed", packed)):
        source, target = (_pieces(side, tokenizer) for side, tokenizer in zip(batch, tokenizers, strict=True))
        starts = np.asarray(batch.target.positions[0]) == 0
        shifted = ["<s>" if starts[index] else target[index - 1] for index in range(len(target))]
        inputs = [PADDING if own == PADDING else before for own, before in zip(target, shifted, strict=True)]
        axes = {"encoder": (source, source), "decoder, causal": (target, inputs), "cross": (target, source)}
        for (kind, (rows, columns)), mask in zip(axes.items(), row_masks(batch), strict=True):
            cells = mask.astype(float)
            panels.append(MatrixPanel(f"{name}: {kind}", cells, "", "", rows, columns, numbers=".0f", limit=2.0))
            lines.append(f"{name:<7} {kind:<16} {mask.sum():>4} of {mask.size:>4} pairs may attend")
    draw_panels(panels, path, title="Masks: rows are queries, columns are keys; 1 may attend, - is padding")
    return lines


def _short_pairs(subject: Subject, tokenizers: TokenizerPair) -> list[tuple[list[int], list[int]]]:
    config = subject.config
    corpus = open_corpus(config.data, config.data_seed, config.parts)
    pairs = [
        ([*tokenizers.source.encode(pair.source), EOS_ID], [*tokenizers.target.encode(pair.target), EOS_ID])
        for pair in itertools.islice(corpus.pairs(config.data.split_name(SPLIT)), READ)
    ]
    if len(pairs) < 3:
        raise DataError(f"data: the split {SPLIT} has {len(pairs)} pairs; this figure needs three")
    ordered = sorted(pairs, key=lambda pair: max(map(len, pair)))
    return [*ordered[:2], ordered[len(ordered) // 4 + 1]]


def _pieces(tokens: Tokens, tokenizer: Tokenizer) -> list[str]:
    """The pieces of the first row."""
    pieces = tokenizer.pieces(np.asarray(tokens.ids[0]).tolist())
    return [
        PADDING if segment == 0 else "</s>" if ids == EOS_ID else visible_piece(piece)
        for piece, ids, segment in zip(pieces, tokens.ids[0], tokens.segments[0], strict=True)
    ]
