"""Attention masks of real sentences: padded, a pair a row, and packed, two pairs a row (Vaswani et al. 2017, section 3.2.3)."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data.batches import token_rows
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tools.pictures.attention_maps import visible_piece
from transformer_jax.tools.pictures.panels import MatrixPanel, draw_panels
from transformer_jax.tools.pictures.subject import Subject

SPLIT, READ = "validation", 64
PADDING = "-"


class RowMasks(NamedTuple):
    """The masks of one row of a batch, boolean, True = may attend.

    ``encoder`` [S, S], ``decoder`` [T, T], ``cross`` [T, S].
    """

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def row_masks(batch: Batch, row: int = 0) -> RowMasks:
    """What the Transformer masks in a row of ``batch``."""
    source, target = batch.source.segments, batch.target.segments
    masks = SentenceMask(source, source), SentenceMask(target, target, is_causal=True), SentenceMask(target, source)
    return RowMasks(*(np.asarray(mask.array())[row] for mask in masks))


def padded_and_packed(pairs: Sequence[tuple[list[int], list[int]]]) -> tuple[Batch, Batch]:
    """Two batches of three pairs of token ids with EOS: a pair a row, as wide as the longest; and the first two in one row."""

    def side(number: int, count: int, offsets: list[int]) -> Tokens:
        sentences = joined([pair[number] for pair in pairs[:count]])
        filled = [int(sentences.lengths[a:b].sum()) for a, b in itertools.pairwise(offsets)]
        return token_rows(sentences, np.asarray(offsets), max(filled))

    padded, packed = ((3, [0, 1, 2, 3]), (2, [0, 2]))
    return Batch(side(0, *padded), side(1, *padded)), Batch(side(0, *packed), side(1, *packed))


def make(subject: Subject, path: Path) -> list[str]:
    """Draws the masks of short sentences among the first of the validation split."""
    subject.require_translation()
    tokenizers = subject.trained.tokenizers if subject.is_trained else TranslationTask.new_tokenizers(subject.config)
    padded, packed = padded_and_packed(_short_pairs(subject, tokenizers))
    panels, lines = [], []
    for name, batch in (("padded", padded), ("packed", packed)):
        masks = row_masks(batch)
        source, target = (
            _names(side, tokenizer)
            for side, tokenizer in zip(batch, (tokenizers.source, tokenizers.target), strict=True)
        )
        inputs = [
            "<s>" if position == 0 else target[place - 1] for place, position in enumerate(batch.target.positions[0])
        ]
        inputs = [PADDING if each == PADDING else own for each, own in zip(target, inputs, strict=True)]
        for kind, mask, rows, columns in (
            ("encoder", masks.encoder, source, source),
            ("decoder, causal", masks.decoder, target, inputs),
            ("cross", masks.cross, target, source),
        ):
            panels.append(
                MatrixPanel(f"{name}: {kind}", mask.astype(float), rows=rows, columns=columns, numbers=".0f", limit=2.0)
            )
            lines.append(f"{name:<7} {kind:<16} {mask.sum():>4} of {mask.size:>4} pairs may attend")
    draw_panels(panels, path, title="Masks: rows are queries, columns are keys; 1 may attend, - is padding")
    return lines


def _short_pairs(subject: Subject, tokenizers: TokenizerPair) -> list[tuple[list[int], list[int]]]:
    config = subject.config
    corpus = open_corpus(config.data, config.data_seed)
    pairs = [
        ([*tokenizers.source.encode(pair.source), EOS_ID], [*tokenizers.target.encode(pair.target), EOS_ID])
        for pair in itertools.islice(corpus.pairs(config.data.split_name(SPLIT)), READ)
    ]
    if len(pairs) < 3:
        raise DataError(f"data: the split {SPLIT} has {len(pairs)} pairs; this figure takes three")
    ordered = sorted(pairs, key=lambda pair: max(map(len, pair)))
    return [*ordered[:2], ordered[len(ordered) // 4 + 1]]


def _names(tokens: Tokens, tokenizer: object) -> list[str]:
    """The pieces of the first row."""
    pieces = tokenizer.pieces(np.asarray(tokens.ids[0]).tolist())  # type: ignore[attr-defined]
    return [
        PADDING if segment == 0 else "</s>" if ids == EOS_ID else visible_piece(piece)
        for piece, ids, segment in zip(pieces, tokens.ids[0], tokens.segments[0], strict=True)
    ]
