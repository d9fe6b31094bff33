"""Sentence pairs in a teacher-forced pass: tokens, batches, log-probabilities of the targets."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, Array, Float, PyTree
from transformer_jax.config import DataError, DecodingConfig
from transformer_jax.data.batches import scoring_rows, token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.data.text_files import visible
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.texts import READING_TOKENS, TokenScores, token_log_probs
from transformer_jax.tasks.translation.translator import require_translatable
from transformer_jax.training.sharding import put_rows, replicated, row_groups


class EncodedPairs(NamedTuple):
    """Tokens of every sentence, EOS included, where pair i is sentence i of both sides."""

    sources: list[list[int]]
    targets: list[list[int]]

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([*map(len, self.sources)], np.int64), np.array([*map(len, self.targets)], np.int64)

    def batches(self, batch_tokens: int, row_multiple: int, longest: int | None) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield pairs and their batch, one pair a row; every pair once, the longest first.

        ``longest``: maximum length of a sequence of the model; None: any.
        """
        for shape, pairs, offsets in scoring_rows(*self.lengths, batch_tokens, row_multiple, longest=longest):
            sides = (
                token_rows(joined([side[pair] for pair in pairs]), offsets, width)
                for side, width in zip(self, shape[1:], strict=True)
            )
            yield pairs, Batch(*sides)


def encode_pairs(
    tokenizers: TokenizerPair, sources: Sequence[str], targets: Sequence[str], max_tokens: int, longest: int | None
) -> EncodedPairs:
    """Return the tokens of both sides.

    Raises DataError if their numbers differ, or a sentence has more than ``max_tokens`` or the
    model's ``longest``.
    """
    if len(sources) != len(targets):
        problem = f"{len(sources)} source sentences but {len(targets)} target sentences"
        raise DataError(f"{problem}; pair i is line i of each")
    encoded = tokenizers.source.encode_batch(sources), tokenizers.target.encode_batch(targets)
    pairs = EncodedPairs(*([[*ids, EOS_ID] for ids in side] for side in encoded))
    require_translatable(np.maximum(*pairs.lengths), max_tokens, "pair", longest=longest)
    return pairs


class PairScorer:
    """Scores translations with one model, and keeps compiled programs for a few shapes."""

    def __init__(
        self, model: Module, tokenizers: TokenizerPair, decoding: DecodingConfig, mesh: Mesh, longest: int | None
    ) -> None:
        self._tokenizers, self._mesh = tokenizers, mesh
        self._max_tokens, self._longest = decoding.max_source_tokens, longest
        self._score = jax.jit(partial(_target_log_probs, model), out_shardings=replicated(mesh))

    def score(self, params: PyTree, sources: Sequence[str], targets: Sequence[str]) -> list[TokenScores]:
        """Score ``targets`` as translations of ``sources``, in their order.

        A blank source has the blank translation: no token with it, and tokens of probability 0 with
        another. Raises DataError if the numbers of sentences differ or one is too long
        (``decoding.max_source_tokens``).
        """
        pairs, of_pairs = self._log_probs(params, sources, targets)
        pieces_of, scores = self._tokenizers.target.shown, []
        source_is_blank, target_is_blank = (tokenizer.is_blank for tokenizer in self._tokenizers)
        for pair, (source, target) in enumerate(zip(sources, targets, strict=True)):
            ids = pairs.targets[pair]
            score = TokenScores([*pieces_of(ids[:-1]), "</s>"], of_pairs[pair].tolist())
            if source_is_blank(source, pairs.sources[pair][:-1]):
                is_empty = target_is_blank(target, ids[:-1])
                score = TokenScores([], []) if is_empty else score._replace(log_probs=[-math.inf] * len(ids))
            scores.append(score)
        return scores

    def nll(self, params: PyTree, sources: Sequence[str], targets: Sequence[str]) -> tuple[float, int]:
        """Return the negative log-probability of ``targets`` in nats, and their tokens.

        As the loss of a split, with blank sources. Raises DataError as ``score``.
        """
        _, of_pairs = self._log_probs(params, sources, targets)
        return -sum(float(np.sum(each, dtype=np.float64)) for each in of_pairs), sum(map(len, of_pairs))

    def _log_probs(
        self, params: PyTree, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[EncodedPairs, list[np.ndarray]]:
        """Return the tokens of all pairs, and the log-probabilities of their targets."""
        pairs = encode_pairs(self._tokenizers, sources, targets, self._max_tokens, self._longest)
        of_pairs = [np.zeros(0)] * len(targets)
        for rows, batch in pairs.batches(READING_TOKENS, row_groups(self._mesh), self._longest):
            log_probs = jax.device_get(self._score(params, put_rows(batch, self._mesh)))
            for row, pair in enumerate(rows):
                of_pairs[pair] = log_probs[row, : len(pairs.targets[pair])]
        return pairs, of_pairs


def _target_log_probs(model: Module, params: PyTree, batch: Batch) -> Float[Array, "B T"]:
    memory = call(model, params, "encode", batch.source, train=False)
    return token_log_probs(call(model, params, "decode", batch.target, memory, train=False), batch.target.ids)


def require_visible(tokenizer: Tokenizer, text: str, ids: Sequence[int], name: str) -> None:
    if tokenizer.is_blank(text, ids):
        problem = "has no visible character, or is a language code alone; give a sentence"
        raise DataError(f"{name}: '{visible(text)}' {problem}")


def tokens_of_pair(
    tokenizers: TokenizerPair, source: str, target: str
) -> tuple[tuple[list[int], list[int]], dict[str, list[str]]]:
    """Return source and target ids, with EOS, and the pieces of source, target and decoder input.

    Raises DataError for a blank source.
    """
    ids = tokenizers.source.encode(source), tokenizers.target.encode(target)
    require_visible(tokenizers.source, source, ids[0], "the source")
    source_pieces, pieces = ([*side.shown(of_side), "</s>"] for side, of_side in zip(tokenizers, ids, strict=True))
    axes = {"source": source_pieces, "target": pieces, "input": ["<s>", *pieces[:-1]]}
    return ([*ids[0], EOS_ID], [*ids[1], EOS_ID]), axes
