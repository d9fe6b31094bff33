"""Shortlists of a run: counted on its training data, and in the search of its model."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, Int, PyTree
from transformer_jax.config import DecodingConfig, ExperimentConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.ibm_model1 import lexical_table
from transformer_jax.data.token_store import open_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import Hypotheses
from transformer_jax.decoding.segmented_search import InitCache, SearchBatch, SegmentedSearch, Step
from transformer_jax.decoding.shortlist import (
    Shortlist,
    as_rows,
    cache_among,
    columns_for,
    load_shortlist,
    step_among,
)
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import DecodeCache


def shortlist_of(
    config: ExperimentConfig, tokenizers: TokenizerPair, candidates: int, frequent: int, most_pairs: int
) -> Shortlist:
    """The shortlist by the training data, or at most ``most_pairs`` of it, spread evenly."""
    corpus = open_corpus(config.data, config.data_seed)
    store = open_token_store(corpus, config.data.train_split, tokenizers, config.data, is_training=True)
    pairs = np.unique(np.linspace(0, store.num_pairs - 1, min(most_pairs, store.num_pairs)).astype(np.int64))
    sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
    best = lexical_table(store.source_side, store.target_side, pairs, sizes[1]).best(candidates, sizes[0])
    counts = np.bincount(store.target_side.sentences(pairs)[0], minlength=sizes[1])
    counts[:NUM_SPECIAL_IDS] = 0
    most_frequent = np.argsort(-counts, kind="stable")[: min(frequent, np.count_nonzero(counts))]
    return Shortlist(best, most_frequent.astype(np.int32), digests_of(tokenizers))


def digests_of(tokenizers: TokenizerPair) -> tuple[str, str]:
    """Digests of both sides."""
    return tokenizers.source.fingerprint(), tokenizers.target.fingerprint()


def shortlist_for(config: DecodingConfig, tokenizers: TokenizerPair) -> Shortlist | None:
    """The shortlist that the settings name; raises as ``load_shortlist`` does."""
    if not config.shortlist:
        return None
    sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
    return load_shortlist(config.shortlist, digests_of(tokenizers), *sizes)


def functions_among(model: Module, init_cache: InitCache) -> tuple[InitCache, Step]:
    """For a search among candidates, whose inputs are source ids and candidates [B, C], both functions of a model."""

    def init_among(params: PyTree, inputs: tuple[Array, Int[Array, "B C"]], room: int) -> DecodeCache:
        source_ids, candidates = inputs
        output = call(model, params, "output_columns", candidates)
        return cache_among(init_cache(params, source_ids, room), candidates, output)

    return init_among, lambda params: step_among(partial(call, model, params, "decode_step"))


def search_among(
    search: SegmentedSearch,
    params: PyTree,
    batches: Iterable[SearchBatch],
    candidates: Sequence[np.ndarray],
    put: Callable[[np.ndarray], Array],
) -> Iterator[tuple[np.ndarray, Hypotheses]]:
    """As ``search``, each sentence among its own candidates; the hypotheses are of ids again. ``put`` puts rows on devices."""
    for names, found in search.search(params, _batches_among(batches, candidates, put)):
        ids: Any = np.stack([candidates[name][columns] for name, columns in zip(names, found.ids, strict=True)])
        yield names, found._replace(ids=ids)


def _batches_among(
    batches: Iterable[SearchBatch], candidates: Sequence[np.ndarray], put: Callable[[np.ndarray], Array]
) -> Iterator[SearchBatch]:
    """The same batches with candidates; those of one kind have the same number of columns, so they can still share rows."""
    for _, alike in itertools.groupby(batches, lambda batch: batch.kind):
        of_kind = [(batch, [candidates[name] for name in batch.names if name >= 0]) for batch in alike]
        columns = max(columns_for(own) for _, own in of_kind)
        for batch, own in of_kind:
            rows = as_rows(own, len(batch.names), columns)
            forced = batch.forced
            if forced is not None:
                forced = np.argmax(rows[:, None] == forced[:, :, None], axis=2).astype(np.int32)
            like = batch.like, jax.ShapeDtypeStruct(rows.shape, rows.dtype)
            yield batch._replace(inputs=(batch.inputs, put(rows)), forced=forced, like=like)
