"""The alignment error rate of every head that attends to the source, against manual alignments."""

from collections.abc import Callable, Sequence

import numpy as np

from transformer_jax.config import ConfigError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.word_alignment import (
    GoldAlignment,
    Links,
    best_links,
    require_words,
    score_alignments,
)
from transformer_jax.tasks.translation.soft_alignment import between_words, word_membership


def head_error_rates(
    weights_of: Callable[[str, str], np.ndarray],
    tokenizers: TokenizerPair,
    pairs: Sequence[tuple[str, str]],
    gold: Sequence[GoldAlignment],
    name: str,
) -> np.ndarray:
    """AER [L, H] when each target word is linked with the source word to which the head attends most (see ``align``).

    ``weights_of`` a pair are [L, H, T, S], EOS included; ``name`` is the file of ``gold``, for errors. Raises DataError when
    ``gold`` does not fit the pairs, ConfigError when nothing attends to the source.
    """
    links: list[list[Links]] = []
    shapes = []
    for source, target in pairs:
        sides = word_membership(tokenizers.source, source), word_membership(tokenizers.target, target)
        shapes.append((len(sides[1]), len(sides[0])))
        weights = weights_of(source, target)
        if not len(weights):
            raise ConfigError("--gold: this model has no attention from target to source")
        heads = weights.reshape(-1, *weights.shape[2:])
        links.append([best_links(between_words(head, *sides)) for head in heads])
    require_words(gold, shapes, name)
    rates = [score_alignments(of_head, gold).error_rate for of_head in zip(*links, strict=True)]
    return np.reshape(rates, weights.shape[:2])
