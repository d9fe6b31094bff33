"""Given texts in a teacher-forced pass of a language model: tokens, and their log-probabilities."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, Array, Float, PyTree
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.texts import READING_TOKENS, TokenScores, token_log_probs
from transformer_jax.training.sharding import put_rows, replicated, row_groups


class TextWindow(NamedTuple):
    """The tokens ``ids`` of a text from ``start`` on, which the model reads at once; the first ``known`` are context only."""

    text: int
    start: int
    ids: list[int]
    known: int


def windows_of(text: int, ids: list[int], length: int) -> list[TextWindow]:
    """Windows of at most ``length`` tokens; each token of the text is scored in one of them.

    The windows of a longer text overlap by half: a token has at least ``length // 2`` tokens of context.
    """
    stride = length - length // 2
    number = 1 + -(-max(len(ids) - length, 0) // stride)
    starts = [index * stride for index in range(number)]
    return [TextWindow(text, start, ids[start : start + length], length // 2 if start else 0) for start in starts]


def score_texts(
    model: Module, params: PyTree, tokenizer: Tokenizer, texts: Sequence[str], length: int, mesh: Mesh
) -> list[TokenScores]:
    """The log-probability of every token of each text, a document that ends with EOS.

    A text longer than the context, ``length`` tokens, is scored in windows that overlap by half.
    """
    encoded = [[*ids, EOS_ID] for ids in tokenizer.encode_batch(list(texts))]
    windows = [window for text, ids in enumerate(encoded) for window in windows_of(text, ids, length)]
    found = [np.zeros(len(ids), np.float32) for ids in encoded]
    batches = source_batches(
        [window.ids for window in windows], batch_tokens=READING_TOKENS, row_multiple=row_groups(mesh)
    )
    score = jax.jit(partial(_log_probs, model), out_shardings=replicated(mesh))
    for batch in batches:
        chosen = [windows[index] for index in batch.indices]
        rows = put_rows(Tokens.from_ids(batch.ids[:, :length]), mesh)
        scored = jax.device_get(score(params, rows))
        for (text, start, ids, known), log_probs in zip(chosen, scored, strict=False):
            found[text][start + known : start + len(ids)] = log_probs[known : len(ids)]
    return [
        TokenScores([*tokenizer.pieces(ids[:-1]), "</s>"], log_probs.tolist())
        for ids, log_probs in zip(encoded, found, strict=True)
    ]


def _log_probs(model: Module, params: PyTree, tokens: Tokens) -> Float[Array, "B T"]:
    return token_log_probs(call(model, params, "__call__", tokens, train=False), tokens.ids)


def ids_of_text(tokenizer: Tokenizer, text: str, limit: int) -> list[int]:
    """The tokens of a text and EOS; raises DataError when they are more than ``limit``, the training context."""
    ids = [*tokenizer.encode(text), EOS_ID]
    if len(ids) > limit:
        raise DataError(
            f"--text: {len(ids) - 1} tokens and EOS exceed the context of {limit} tokens that the model was trained on"
        )
    return ids


def axes_of(tokenizer: Tokenizer, ids: list[int]) -> dict[str, list[str]]:
    """The pieces of a text that ends with EOS, and the pieces of the decoder input."""
    pieces = [*tokenizer.pieces(ids[:-1]), "</s>"]
    return {"target": pieces, "input": ["<s>", *pieces[:-1]]}
