"""Soft word alignment: attention from the words of a translation to the source words."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.data.scripts import lack_spaces, writes_without_spaces
from transformer_jax.data.tokenization import BuildProgress
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.pairs import encode_pairs
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.training.sharding import put_rows, replicated, row_groups

# Source and target positions of a batch.
ALIGNMENT_TOKENS = 4096
MEAN_OF_LAYERS = -1


class SoftAlignment(NamedTuple):
    """Attention weights ``[T, S]`` of a pair. Row i predicts target piece i, and EOS is the last.

    ``word_weights`` [target words, source words] sums over the pieces of a source word and averages
    over the pieces of a target word. White space separates words, and without it pieces are words
    (see ``lack_spaces``).
    """

    weights: np.ndarray
    source_pieces: list[str]
    target_pieces: list[str]
    word_weights: np.ndarray


def soft_alignments(
    trained: TrainedRun[TranslationTask],
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    layer: int = 0,
    head: int = 0,
) -> list[SoftAlignment]:
    """Return the teacher-forced cross attention of every pair, in order.

    ``layer`` and ``head`` count from 1. Layer 0 is the last but one, or the only one: in a
    Transformer it aligns best (Garg et al. 2019). Layer -1 and head 0 are the mean of all. Writes
    progress lines to standard error. Raises DataError if a sentence is too long.
    """
    sources, targets = (
        ["" if tokenizer.is_blank(text, tokenizer.encode(text)) else text for text in texts]
        for tokenizer, texts in zip(trained.tokenizers, (sources, targets), strict=True)
    )
    are_words = lack_spaces(sources), lack_spaces(targets)
    weights, progress = {}, BuildProgress("words", len(sources), doing="aligning")
    weigh = compiled_weights(trained, partial(_selected, layer=layer, head=head))
    for pair, matrix in cross_attention(trained, sources, targets, weigh):
        weights[pair] = matrix
        progress.advance(1)
    texts = zip(sources, targets, strict=True)
    return [
        _described(weights[pair], pair_texts, are_words, trained.tokenizers) for pair, pair_texts in enumerate(texts)
    ]


Weigh = Callable[[PyTree, Tokens, Tokens], Float[Array, "B ... T S"]]
"""Returns the weights of a teacher-forced pass from parameters, source and target."""


def compiled_weights(
    trained: TrainedRun[TranslationTask], choose: Callable[[list[Float[Array, "B H T S"]]], Float[Array, "B ... T S"]]
) -> Weigh:
    """Compile ``choose(layers)`` of the cross attention.

    A call raises ConfigError if nothing attends to the source.
    """

    def weigh(params: PyTree, source: Tokens, target: Tokens) -> Float[Array, "B ... T S"]:
        layers = layers_by_kind(attention_maps(trained.model, params, source, target)).get("cross")
        if layers is None:
            raise ConfigError("--workdir", "this model has no attention from target to source")
        return choose([*layers.values()])

    return jax.jit(weigh, out_shardings=replicated(trained.mesh))


def cross_attention(
    trained: TrainedRun[TranslationTask], sources: Sequence[str], targets: Sequence[str], weigh: Weigh
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index and the weights [..., T, S] of every pair, the longest pairs first.

    Raises DataError if a sentence is too long, ConfigError if nothing attends to the source.
    """
    limit, longest = trained.config.decoding.max_source_tokens, trained.config.model.longest_sequence
    pairs = encode_pairs(trained.tokenizers, sources, targets, limit, longest)
    source_lengths, target_lengths = pairs.lengths
    for rows, batch in pairs.batches(ALIGNMENT_TOKENS, row_groups(trained.mesh), longest):
        maps = jax.device_get(weigh(trained.params, *put_rows(batch, trained.mesh)))
        for row, pair in enumerate(rows.tolist()):
            yield pair, maps[row, ..., : target_lengths[pair], : source_lengths[pair]]


def _selected(layers: list[Float[Array, "B H T S"]], *, layer: int, head: int) -> Float[Array, "B T S"]:
    index = layer - 1 if layer else max(len(layers) - 2, 0)
    weights = jnp.mean(jnp.stack(layers), axis=0) if layer == MEAN_OF_LAYERS else layers[index]
    return weights[:, head - 1] if head else jnp.mean(weights, axis=1)


def _described(
    weights: np.ndarray, texts: tuple[str, str], are_words: tuple[bool, bool], tokenizers: TokenizerPair
) -> SoftAlignment:
    sides = list(zip(tokenizers, texts, are_words, strict=True))
    source, target = ([*tokenizer.shown(tokenizer.encode(text)), "</s>"] for tokenizer, text, _ in sides)
    return SoftAlignment(weights, source, target, between_words(weights, *(word_membership(*side) for side in sides)))


def between_words(weights: np.ndarray, to_source: np.ndarray, to_target: np.ndarray) -> np.ndarray:
    """Sum weights ``[T, S]``, EOS last, over pieces of a source word, and average over a target's.

    ``to_source`` and ``to_target`` come from ``word_membership``.
    """
    return (to_target / np.maximum(to_target.sum(axis=1, keepdims=True), 1)) @ weights[:-1, :-1] @ to_source.T


def word_membership(tokenizer: Tokenizer, text: str, are_words: bool = False) -> np.ndarray:
    """Return 1 if a piece belongs to a word, else 0 [words, pieces]. See ``words_of_pieces``."""
    # A code that the tokenizer puts before every text belongs to no word.
    surfaces, prefix = tokenizer.surfaces(text), len(tokenizer.surfaces(""))
    words = [-1] * prefix + words_of_pieces(surfaces[prefix:], are_words)
    count = max(words, default=-1) + 1
    return (np.arange(count)[:, None] == np.array(words, np.int64)[None, :]).astype(np.float32)


def words_of_pieces(surfaces: Sequence[bytes], are_words: bool = False) -> list[int]:
    """Return the index of the word of each piece. A space belongs to the word after it.

    Pieces ``a``, `` d``, ``og`` of ``a dog`` give ``[0, 1, 1]``. Space at the end belongs to the
    last word. With ``are_words``, letters of a script without spaces also separate words at the
    borders of pieces: ``私は``, ``JA``, ``X``, ``が`` give ``[0, 1, 1, 2]``.
    """
    text = b"".join(surfaces).decode("utf-8", "surrogatepass")
    is_space = [character.isspace() for character in text]
    begins = [not space and (not index or is_space[index - 1]) for index, space in enumerate(is_space)]
    ends = np.cumsum([len(surface) for surface in surfaces], dtype=int)
    lengths = [len(character.encode("utf-8", "surrogatepass")) for character in text]
    if are_words:
        is_unspaced = [writes_without_spaces(character) for character in text]
        starts = np.isin(np.cumsum(lengths) - lengths, ends)
        begins = [
            begin or bool(starts[index] and not is_space[index] and (is_unspaced[index] or is_unspaced[index - 1]))
            for index, begin in enumerate(begins)
        ]
    begun = np.cumsum(begins)
    owner = np.minimum(begun - ~np.array(is_space, bool), max(begun[-1] - 1, 0)) if text else np.zeros(0, int)
    of_byte = np.repeat(owner, lengths)
    return [int(of_byte[end - 1]) for end in ends]
