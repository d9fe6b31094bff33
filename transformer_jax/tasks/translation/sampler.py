"""Translations drawn from a model instead of searched for."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.decoding.beam_search import Rules, StepFunction
from transformer_jax.decoding.sampled_search import SAMPLED_SEARCH, SampledRules, cache_with_keys, step_beside_keys
from transformer_jax.decoding.sampling import SamplingRule
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.translation.searches import search_on
from transformer_jax.tasks.translation.sources import encode_sources
from transformer_jax.tasks.translation.trained_run import TrainedRun
from transformer_jax.tasks.translation.translator import NOTHING, Translation, init_cache, translation_of
from transformer_jax.training.sharding import put_rows, whole_over_fsdp

# Samples that share a row; each attends over the tokens of all of them.
MOST_SAMPLES = 8


class Sampler:
    """Draws translations with one model by one rule; compiled programs are kept."""

    def __init__(self, trained: TrainedRun, rule: SamplingRule, seed: int = 0) -> None:
        self._trained, self._rule = trained, rule
        params = whole_over_fsdp(trained.params, trained.mesh, trained.objective.evaluation_dtype)
        self._params = params, jax.random.key(seed)
        self._searches: dict[int, SegmentedSearch] = {}

    def translate(
        self, sentences: Sequence[str], *, num_results: int = 1, name: str = "sentence", first: int = 1
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, in the order of ``sentences``; nothing for an empty one.

        What is drawn for a sentence depends on the seed, its number (from ``first`` on) and its text, and on nothing else;
        fewer results are the first of more. One that reaches its most tokens ends there.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``.
        """
        tokenizers, limit = self._trained.tokenizers, self._trained.config.decoding.max_source_tokens
        asked, sources = encode_sources(tokenizers.source, sentences, limit, name, first)
        in_row = -(-num_results // -(-num_results // MOST_SAMPLES))
        rows = [(place, copy) for place in range(len(asked)) for copy in range(0, num_results, in_row)]
        numbers = np.array([(asked[place] + first - 1, copy) for place, copy in rows], np.int32).reshape(-1, 2)
        drawn: list[list[Translation]] = [[] for _ in rows]
        batches = self._batches([sources[place] for place, _ in rows], numbers)
        for names, samples in self._search_for(in_row).search(self._params, batches):
            for place, row in enumerate(names):
                each_sample = zip(samples.ids[place], samples.scores[place], samples.lengths[place], strict=True)
                drawn[row] = [
                    translation_of(ids[:length], float(score), tokenizers) for ids, score, length in each_sample
                ]
        results: list[list[Translation]] = [[] if each.strip() else [NOTHING] for each in sentences]
        for (place, _), translations in zip(rows, drawn, strict=True):
            results[asked[place]] += translations
        return [each[:num_results] for each in results]

    def _batches(self, sources: Sequence[list[int]], numbers: np.ndarray) -> Iterator[SearchBatch]:
        """Sources with the numbers [N, 2] of their sentence and of the first of the samples that are drawn for it."""
        for batch in self._trained.translator.batches(sources, []):
            own = np.where(batch.names[:, None] >= 0, numbers[batch.names], 0)
            shape = jax.ShapeDtypeStruct(own.shape, own.dtype)
            yield batch._replace(inputs=(batch.inputs, put_rows(own, self._trained.mesh)), like=(batch.like, shape))

    def _search_for(self, samples: int) -> SegmentedSearch:
        """Made once for each number of samples in a row: it keeps compiled programs."""
        if samples not in self._searches:
            model, mesh = self._trained.model, self._trained.mesh
            rules = Rules(samples, samples, self._trained.config.decoding.length_penalty)
            init, sampled = partial(_cache_of_samples, model, samples), SampledRules(rules, self._rule)
            self._searches[samples] = search_on(mesh, init, partial(_step, model), sampled, SAMPLED_SEARCH)
        return self._searches[samples]


def _cache_of_samples(
    model: Module, samples: int, params_and_key: PyTree, inputs: tuple[Array, Int[Array, "B 2"]], room: int
) -> DecodeCache:
    """The encoded sources before the first token, with a key for each sample."""
    (params, key), (source_ids, numbers) = params_and_key, inputs
    copies = numbers[:, 1:] + jnp.arange(samples)[None]
    return cache_with_keys(init_cache(model, samples, params, source_ids, room), key, numbers[:, 0], copies)


def _step(model: Module, params_and_key: PyTree) -> StepFunction:
    params, _ = params_and_key
    return step_beside_keys(partial(call, model, params, "decode_step"))
