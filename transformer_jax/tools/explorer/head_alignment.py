"""The alignment error rate of every head that attends to the source, against manual alignments."""

from collections.abc import Iterable, Sequence

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.word_alignment import (
    GoldAlignment,
    Links,
    best_links,
    require_words,
    score_alignments,
)
from transformer_jax.tasks.translation.soft_alignment import between_words, pieces_are_words, word_membership


def head_error_rates(
    weights: Iterable[tuple[int, np.ndarray]],
    tokenizers: TokenizerPair,
    pairs: Sequence[tuple[str, str]],
    gold: Sequence[GoldAlignment],
    name: str,
) -> np.ndarray:
    """AER [L, H] when each target word is linked with the source word to which the head attends most (see ``align``).

    ``weights``: the number of a pair, from 0, and its [L, H, T, S], EOS included, every pair once; ``name`` is the file of
    ``gold``, for errors. Raises DataError when ``gold`` is empty or does not fit the pairs.
    """
    if not pairs:
        raise DataError(f"{name}: no pairs to align; it needs one at least")
    are_words = [pieces_are_words(texts) for texts in zip(*pairs, strict=True)]
    sides = [tuple(word_membership(*side) for side in zip(tokenizers, pair, are_words, strict=True)) for pair in pairs]
    require_words(gold, [(len(target), len(source)) for source, target in sides], name)
    links: dict[int, list[Links]] = {}
    for pair, of_pair in weights:
        shape = of_pair.shape[:2]
        heads = of_pair.reshape(-1, *of_pair.shape[2:])
        links[pair] = [best_links(between_words(head, *sides[pair])) for head in heads]
    by_head = zip(*(links[pair] for pair in range(len(pairs))), strict=True)
    return np.reshape([score_alignments(of_head, gold).error_rate for of_head in by_head], shape)
