"""A language model that is a table: the next token depends on the whole prefix, so wrongly
reordered beams show."""

import itertools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.sequence_types import DecodeCache

NUM_CONTEXTS = 97


class Hypothesis(NamedTuple):
    score: float
    log_prob: float
    ids: tuple[int, ...]


def random_tables(num_sentences: int, vocabulary_size: int, *, seed=0, scale=2.0, eos_bias=0.0) -> np.ndarray:
    """Logits float32 ``[B, contexts, V]``: one table a sentence."""
    tables = np.random.default_rng(seed).normal(0, scale, (num_sentences, NUM_CONTEXTS, vocabulary_size))
    tables[:, :, EOS_ID] += eos_bias
    return tables.astype(np.float32)


def context_of(prefix) -> int:
    """The row of the table for the tokens chosen so far (without BOS): it depends on all of them
    and their order."""
    context = 1
    for token in prefix:
        context = (context * 5 + int(token)) % NUM_CONTEXTS
    return context


def make_cache(tables, beam_width: int, max_length: int) -> DecodeCache:
    batch_size = tables.shape[0]
    per_beam = {
        "history": jnp.zeros((batch_size, beam_width, max_length + 1, 2), jnp.int32),
        "counter": jnp.zeros((), jnp.int32),
    }
    kv_cache = {"reads": jnp.zeros(batch_size, jnp.int32)}
    return DecodeCache(per_beam=per_beam, per_sentence={"tables": jnp.asarray(tables)}, kv_cache=kv_cache)


def step(token_ids, cache: DecodeCache):
    """Writes the tokens into the history and reads the logits that belong to the history, never to
    the tokens alone."""
    history, counter = cache.per_beam["history"], cache.per_beam["counter"]
    written = jnp.stack([token_ids, 2 * token_ids], axis=-1)
    history = history.at[:, :, counter].set(written)
    # The sum that ``context_of`` comes to: a loop over the places would make a large program.
    places = jnp.arange(history.shape[2])
    powers = jnp.asarray([pow(5, exponent, NUM_CONTEXTS) for exponent in range(history.shape[2])])
    factors = jnp.where((places > 0) & (places <= counter), powers[counter - places], 0)
    context = (powers[counter] + jnp.sum(history[:, :, :, 1] // 2 * factors[None, None], axis=2)) % NUM_CONTEXTS
    tables = cache.per_sentence["tables"]
    logits = jnp.take_along_axis(tables, context[:, :, None], axis=1)
    # search must go on with the per_sentence it was given
    poisoned = {"tables": jnp.full_like(tables, jnp.nan)}
    kv_cache = {"reads": cache.kv_cache["reads"] + 1}
    return logits, DecodeCache({"history": history, "counter": counter + 1}, poisoned, kv_cache)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def log_prob_of(table: np.ndarray, ids) -> float:
    return sum(log_softmax(table[context_of(ids[:place])])[token] for place, token in enumerate(ids))


def scored(table: np.ndarray, ids, alpha: float) -> Hypothesis:
    log_prob = log_prob_of(table, ids)
    return Hypothesis(log_prob / ((5 + len(ids)) / 6) ** alpha, log_prob, tuple(ids))


def ordinary_ids(vocabulary_size: int) -> list[int]:
    return [token for token in range(vocabulary_size) if token not in (PAD_ID, BOS_ID, EOS_ID)]


def exhaustive_search(table: np.ndarray, limit: int, alpha: float) -> list[Hypothesis]:
    """Every hypothesis of at most ``limit`` tokens, best first."""
    words = ordinary_ids(table.shape[1])
    sequences = (prefix for length in range(limit) for prefix in itertools.product(words, repeat=length))
    return sorted((scored(table, (*prefix, EOS_ID), alpha) for prefix in sequences), reverse=True)


def plain_beam_search(table: np.ndarray, limit: int, alpha: float, width: int) -> list[Hypothesis]:
    """Beam search in plain python that never stops early: the best ``width`` finished, best
    first."""
    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        choices = [EOS_ID] if length == limit else [EOS_ID, *ordinary_ids(table.shape[1])]
        candidates = []
        for log_prob, prefix in alive:
            log_probs = log_softmax(table[context_of(prefix)])
            candidates += [(log_prob + log_probs[token], (*prefix, token)) for token in choices]
        candidates.sort(reverse=True)
        finished += [scored(table, ids, alpha) for _, ids in candidates[:width] if ids[-1] == EOS_ID]
        alive = [candidate for candidate in candidates if candidate[1][-1] != EOS_ID][:width]
    return sorted(finished, reverse=True)[:width]


def greedy_search(table: np.ndarray, limit: int) -> tuple[int, ...]:
    prefix: tuple[int, ...] = ()
    while True:
        log_probs = log_softmax(table[context_of(prefix)])
        choices = [EOS_ID] if len(prefix) + 1 == limit else [EOS_ID, *ordinary_ids(table.shape[1])]
        prefix = (*prefix, max(choices, key=lambda token: log_probs[token]))
        if prefix[-1] == EOS_ID:
            return prefix


def is_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4)
