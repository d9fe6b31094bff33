"""Sampled translations."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.decoding.beam_search import DecodeStep, Rules
from transformer_jax.decoding.sampling import SamplingRule, cache_with_keys, row_keys, sampled_search, step_beside_keys
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tasks.translation.translator import (
    NOTHING,
    Translation,
    devices_of_search,
    encode_sources,
    init_cache,
    step_of,
    translation_of,
)
from transformer_jax.training.sharding import put_rows, unshard_fsdp

# Samples in a row of a batch; attention of each reads the cache slots of all.
MAX_SAMPLES = 8


class Sampler:
    """Samples translations from one model by one rule; compiled programs are kept."""

    def __init__(self, trained: TrainedRun[TranslationTask], rule: SamplingRule, seed: int = 0) -> None:
        self._trained, self._rule = trained, rule
        params = unshard_fsdp(trained.params, trained.mesh, trained.task.objective.evaluation_dtype)
        self._params = params, jax.random.key(seed)
        self._searches: dict[int, SegmentedSearch] = {}

    def translate(
        self, sentences: Sequence[str], *, num_results: int = 1, name: str = "sentence", first: int = 1
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, in the order of ``sentences``; of an empty one, one empty text.

        The samples of a sentence depend only on the seed, its number (counted from ``first``) and its text. Fewer results are
        the first of more. A sample is cut at its length limit.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``.
        """
        tokenizers, limit = self._trained.tokenizers, self._trained.config.decoding.max_source_tokens
        nonempty, sources = encode_sources(tokenizers.source, sentences, limit, name, first)
        in_row = -(-num_results // -(-num_results // MAX_SAMPLES))
        parts = [(number, copy) for number in range(len(nonempty)) for copy in range(0, num_results, in_row)]
        numbers = np.array([(nonempty[number] + first - 1, copy) for number, copy in parts], np.int32).reshape(-1, 2)
        drawn: list[list[Translation]] = [[] for _ in parts]
        batches = self._batches([sources[number] for number, _ in parts], numbers)
        for indices, samples in self._search_for(in_row).search(self._params, batches):
            for row, index in enumerate(indices):
                each_sample = zip(samples.ids[row], samples.scores[row], samples.lengths[row], strict=True)
                drawn[index] = [
                    translation_of(ids[:length], float(score), tokenizers) for ids, score, length in each_sample
                ]
        results: list[list[Translation]] = [[] if each.strip() else [NOTHING] for each in sentences]
        for (number, _), translations in zip(parts, drawn, strict=True):
            results[nonempty[number]] += translations
        return [each[:num_results] for each in results]

    def _batches(self, sources: Sequence[list[int]], numbers: np.ndarray) -> Iterator[SearchBatch]:
        """Sources with ``numbers`` [N, 2]: the number of the sentence, and of the first sample of the row."""
        for batch in self._trained.task.translator.batches(sources, []):
            of_batch = np.where(batch.indices[:, None] >= 0, numbers[batch.indices], 0)
            shape = jax.ShapeDtypeStruct(of_batch.shape, of_batch.dtype)
            inputs = batch.inputs, put_rows(of_batch, self._trained.mesh)
            yield batch._replace(inputs=inputs, padded_inputs=(batch.padded_inputs, shape))

    def _search_for(self, samples: int) -> SegmentedSearch:
        """The search for rows of ``samples`` samples, which keeps compiled programs."""
        if samples not in self._searches:
            model, mesh = self._trained.model, self._trained.mesh
            rules = Rules(samples, samples, self._trained.config.decoding.length_penalty)
            init, search = partial(_cache_of_samples, model, samples), sampled_search(rules, self._rule)
            self._searches[samples] = SegmentedSearch(init, partial(_step, model), search, devices_of_search(mesh))
        return self._searches[samples]


def _cache_of_samples(
    model: Module, samples: int, params_and_key: PyTree, inputs: tuple[Array, Int[Array, "B 2"]], capacity: int
) -> DecodeCache:
    """The encoded sources before the first token, with a key for each sample."""
    (params, key), (source_ids, numbers) = params_and_key, inputs
    keys = jax.vmap(row_keys)(row_keys(key, numbers[:, 0]), numbers[:, 1:] + jnp.arange(samples)[None])
    return cache_with_keys(init_cache(model, samples, params, source_ids, capacity), keys)


def _step(model: Module, params_and_key: PyTree) -> DecodeStep:
    params, _ = params_and_key
    return step_beside_keys(step_of(model, params))
