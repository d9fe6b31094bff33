"""Statistics of heads over many sentences: entropy, distance, tokens, alignment error rate."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Bool, Float, PyTree
from transformer_jax.config import DataError
from transformer_jax.config.data import padded_width
from transformer_jax.data.scripts import lack_spaces
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_interface import SPACE_SIGN
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.inspection import ATTENTION_KINDS, attention_maps, layers_by_kind
from transformer_jax.models.interface import Module, shift_right
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.explorer.soft_alignment import between_words, word_membership
from transformer_jax.tools.explorer.word_alignment import (
    GoldAlignment,
    Links,
    best_links,
    require_words,
    score_alignments,
)

BATCH_TOKENS = 2048
OFFSETS = {"previous": -1, "same": 0, "next": 1}
# Titles on the page. All are means over all queries of all sentences.
STATISTICS = {
    "entropy": "entropy in bits",
    "distance": "mean distance |i - j| in tokens",
    "previous": "share on the position before",
    "same": "share on the same position",
    "next": "share on the position after",
    "punctuation": "share on punctuation",
    "boundary": "share on </s>, in the decoder <s>",
}


SumsOfHeads = dict[str, tuple[dict[str, Float[Array, " H"]], Array]]


@dataclass(frozen=True)
class HeadStatistics:
    """Statistics [L, H] of one kind of attention, by name.

    ``source`` describes the sentences, and names heads without entropy: their weights are negative.
    """

    kind: str
    values: dict[str, np.ndarray]
    source: str = ""


def head_statistics(
    sums_of: Callable[..., SumsOfHeads],
    params: PyTree,
    tokenizers: Sequence[Tokenizer],
    sides: Sequence[Sequence[list[int]]],
    longest: int | None = None,
) -> list[HeadStatistics]:
    """Return the statistics of every kind of attention in teacher-forced passes over sentences.

    Args:
        sums_of: ``sums_of_heads`` of the model, compiled.
        params: Parameters of the model.
        tokenizers: Source and target tokenizer, or the tokenizer of a language model.
        sides: Ids with EOS of all sentences, for each tokenizer.
        longest: Maximum number of tokens of the model, or None.
    """
    marks = [np.array(punctuation(tokenizer)) for tokenizer in tokenizers]
    totals: dict[str, dict[str, np.ndarray]] = {}
    counts: dict[str, float] = {}
    for inputs in _batches(sides, longest):
        for path, (sums, count) in jax.device_get(sums_of(params, marks, *inputs)).items():
            before = totals.get(path, {})
            totals[path] = {name: before.get(name, 0.0) + value for name, value in sums.items()}
            counts[path] = counts.get(path, 0.0) + float(count)
    statistics = []
    for kind, layers in layers_by_kind(totals).items():
        values = {name: np.stack([layers[path][name] / counts[path] for path in layers]) for name in STATISTICS}
        source = f"averages over the first {len(sides[0])}"
        if unknown := np.argwhere(np.isnan(values["entropy"])).tolist():
            heads = ", ".join(f"layer {layer + 1} head {head + 1}" for layer, head in unknown)
            del values["entropy"]
            source += f"; no entropy: negative weights in {heads}"
        statistics.append(HeadStatistics(kind, values, source))
    return statistics


def punctuation(tokenizer: Tokenizer) -> list[bool]:
    """Return, by id, whether a piece is only punctuation and spaces (``<0x2E>`` is a period)."""
    pieces = tokenizer.pieces(list(range(tokenizer.vocabulary_size)))
    ascii_of = partial(re.sub, r"<0x([0-7][0-9A-F])>", lambda match: chr(int(match[1], 16)))
    letters = [ascii_of(piece).replace(SPACE_SIGN, "").strip() for piece in pieces]
    return [bool(text) and all(unicodedata.category(letter)[0] == "P" for letter in text) for text in letters]


def _batches(sides: Sequence[Sequence[list[int]]], longest: int | None) -> Iterator[list[Tokens]]:
    """Yield batches of sentences of similar length, the longest first, padded to few widths."""
    longer_sides = [max(rows, key=len) for rows in zip(*sides, strict=True)]
    for batch in source_batches(longer_sides, batch_tokens=BATCH_TOKENS):
        inputs = []
        for side in sides:
            rows = [side[index] for index in batch.indices]
            ids = np.full((len(batch.ids), padded_width(max(map(len, rows)), longest)), PAD_ID, np.int32)
            for row, tokens in enumerate(rows):
                ids[row, : len(tokens)] = tokens
            inputs.append(Tokens.from_ids(ids))
        yield inputs


def sums_of_heads(model: Module, params: PyTree, marks: list[Array], *inputs: Tokens) -> SumsOfHeads:
    """Return the sums over the queries of a batch, and their number, by path of the attention."""
    target = inputs[-1]
    # Ids, which positions are tokens and not padding, and which ids are punctuation.
    axes = {
        "source": (inputs[0].ids, inputs[0].ids != PAD_ID, marks[0]),
        "target": (target.ids, target.ids != PAD_ID, marks[-1]),
        "input": (shift_right(target), target.ids != PAD_ID, marks[-1]),
    }
    sums = {}
    for kind, layers in layers_by_kind(attention_maps(model, params, *inputs)).items():
        _, is_query, _ = axes[ATTENTION_KINDS[kind].rows]
        ids, is_key, is_mark = axes[ATTENTION_KINDS[kind].columns]
        is_boundary = (ids == EOS_ID) | (ids == BOS_ID)
        for path, weights in layers.items():
            shown = jnp.where(is_query[:, None, :, None] & is_key[:, None, None, :], weights, 0.0)
            sums[path] = _sums_of_layer(shown, jnp.asarray(is_mark)[ids], is_boundary), is_query.sum()
    return sums


def entropies(weights: Float[Array, "*N M"]) -> Float[Array, "*N"]:
    """Return the entropy in bits of rows divided by their sum, NaN for negative weights."""
    shares = weights / jnp.maximum(weights.sum(axis=-1, keepdims=True), jnp.finfo(jnp.float32).tiny)
    entropy = -jnp.sum(shares * jnp.log2(jnp.where(shares > 0, shares, 1.0)), axis=-1)
    return jnp.where(jnp.any(weights < 0, axis=-1), jnp.nan, entropy)


def _sums_of_layer(
    weights: Float[Array, "B H Q M"], is_punctuation: Bool[Array, "B M"], is_boundary: Bool[Array, "B M"]
) -> dict[str, Array]:
    offset = jnp.arange(weights.shape[3])[None, :] - jnp.arange(weights.shape[2])[:, None]
    shares = {name: jnp.einsum("BHQM,QM->H", weights, jnp.float32(offset == by)) for name, by in OFFSETS.items()}
    return {
        "entropy": entropies(weights).sum(axis=(0, 2)),
        "distance": jnp.einsum("BHQM,QM->H", weights, jnp.abs(offset).astype(jnp.float32)),
        **shares,
        "punctuation": jnp.einsum("BHQM,BM->H", weights, jnp.float32(is_punctuation)),
        "boundary": jnp.einsum("BHQM,BM->H", weights, jnp.float32(is_boundary)),
    }


def head_error_rates(
    weights: Iterable[tuple[int, np.ndarray]],
    tokenizers: TokenizerPair,
    pairs: Sequence[tuple[str, str]],
    gold: Sequence[GoldAlignment],
    name: str,
) -> np.ndarray:
    """Return the alignment error rate [L, H] of heads that link words as ``align`` does.

    Args:
        weights: Index of a pair, and its weights [L, H, T, S] with EOS.
        tokenizers: Tokenizers of source and target.
        pairs: Source and target of each pair.
        gold: Manual alignments of the pairs.
        name: The file of ``gold``, for errors.

    Raises:
        DataError: There is no pair, or ``gold`` does not fit the pairs.
    """
    if not pairs:
        raise DataError(f"{name}: no pairs to align; give at least one")
    are_words = [lack_spaces(texts) for texts in zip(*pairs, strict=True)]
    sides = [tuple(word_membership(*side) for side in zip(tokenizers, pair, are_words, strict=True)) for pair in pairs]
    require_words(gold, [(len(target), len(source)) for source, target in sides], name)
    links: dict[int, list[Links]] = {}
    for pair, weights_LHTS in weights:
        shape = weights_LHTS.shape[:2]
        heads = weights_LHTS.reshape(-1, *weights_LHTS.shape[2:])
        links[pair] = [best_links(between_words(head, *sides[pair])) for head in heads]
    by_head = zip(*(links[pair] for pair in range(len(pairs))), strict=True)
    return np.reshape([score_alignments(of_head, gold).error_rate for of_head in by_head], shape)
