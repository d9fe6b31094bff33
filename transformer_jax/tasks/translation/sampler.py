"""Sampled translations, and the ones of least Bayes risk among several."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.decoding.beam_search import DecodeStep, Rules
from transformer_jax.decoding.sampling import SamplingRule, cache_with_keys, row_keys, sampled_search, step_beside_keys
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch
from transformer_jax.evaluation.expected_utility import Utility, expected_utilities
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.translation.translator import (
    NOTHING,
    Translation,
    Translator,
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
    """Samples translations from the model of a translator by one rule; compiled programs are kept."""

    def __init__(self, translator: Translator, rule: SamplingRule, seed: int = 0) -> None:
        self._translator, self._rule = translator, rule
        self._key = jax.random.key(seed)
        self._searches: dict[int, SegmentedSearch] = {}

    def translate(
        self, params: PyTree, sentences: Sequence[str], *, num_results: int = 1, name: str = "sentence", first: int = 1
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, in the order of ``sentences``; of an empty one, one empty text.

        The samples of a sentence depend only on the seed, its number (counted from ``first``) and its text. Fewer results are
        the first of more. A sample is cut at its length limit.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``.
        """
        tokenizer, limit = self._translator.tokenizers.source, self._translator.decoding.max_source_tokens
        nonempty, sources = encode_sources(tokenizer, sentences, limit, name, first)
        results: list[list[Translation]] = [[NOTHING] for _ in sentences]
        for index, translations in self.samples(params, sources, [each + first - 1 for each in nonempty], num_results):
            results[nonempty[index]] = translations
        return results

    def samples(
        self, params: PyTree, sources: Sequence[list[int]], numbers: Sequence[int], num_results: int
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Yields the index of each source and its samples, which depend on its number, when they are done."""
        params = unshard_fsdp(params, self._translator.mesh, self._translator.compute_dtype), self._key
        in_row = -(-num_results // -(-num_results // MAX_SAMPLES))
        parts = [(index, copy) for index in range(len(sources)) for copy in range(0, num_results, in_row)]
        row_numbers = np.array([(numbers[index], copy) for index, copy in parts], np.int32).reshape(-1, 2)
        drawn: dict[int, dict[int, list[Translation]]] = {}
        batches = self._batches([sources[index] for index, _ in parts], row_numbers)
        for rows, samples in self._search_for(in_row).search(params, batches):
            for row, part in enumerate(rows):
                index, copy = parts[part]
                each_sample = zip(samples.ids[row], samples.scores[row], samples.lengths[row], strict=True)
                of_source = drawn.setdefault(index, {})
                of_source[copy] = [
                    translation_of(ids[:length], float(score), self._translator.tokenizers)
                    for ids, score, length in each_sample
                ]
                if len(of_source) * in_row >= num_results:
                    yield index, [each for copy in sorted(of_source) for each in of_source[copy]][:num_results]
                    del drawn[index]

    def _batches(self, sources: Sequence[list[int]], numbers: np.ndarray) -> Iterator[SearchBatch]:
        """Sources with ``numbers`` [N, 2]: the number of the sentence, and of the first sample of the row."""
        for batch in self._translator.batches(sources, []):
            of_batch = np.where(batch.indices[:, None] >= 0, numbers[batch.indices], 0)
            shape = jax.ShapeDtypeStruct(of_batch.shape, of_batch.dtype)
            inputs = batch.inputs, put_rows(of_batch, self._translator.mesh)
            yield batch._replace(inputs=inputs, padded_inputs=(batch.padded_inputs, shape))

    def _search_for(self, samples: int) -> SegmentedSearch:
        """The search for rows of ``samples`` samples, which keeps compiled programs."""
        if samples not in self._searches:
            model, mesh = self._translator.model, self._translator.mesh
            rules = Rules(samples, samples, self._translator.decoding.length_penalty)
            init, search = partial(_cache_of_samples, model, samples), sampled_search(rules, self._rule)
            self._searches[samples] = SegmentedSearch(init, partial(_step, model), search, devices_of_search(mesh))
        return self._searches[samples]


class MinimumRiskTranslator(Translator):
    """Translates by the samples of highest expected utility (``decoding.mbr``) instead of by beam search.

    The score of a translation is its expected utility, from 0 to 100. A translation depends only on its source and
    ``decoding.sampling_seed``.
    """

    def __init__(self, *options: Any, utility: Utility) -> None:
        """``options``: of a ``Translator``. Raises ConfigError for a constraint, which samples cannot obey."""
        super().__init__(*options)
        if self.constraint is not None:
            raise ConfigError(
                f"decoding.mbr: {self.decoding.mbr} chooses among samples, which no constraint limits; leave it out"
            )
        self._utility = utility
        self._sampler = Sampler(self, SamplingRule(epsilon=self.decoding.epsilon), self.decoding.sampling_seed)

    def prefix_ids(self, prefix: str) -> list[int]:
        if prefix.strip():
            raise ConfigError("prefix: beam search continues a prefix, decoding.mbr does not; leave out one of them")
        return []

    def _search(
        self, params: PyTree, sources: Sequence[list[int]], num_results: int, prefix_ids: list[int]
    ) -> Iterator[tuple[int, list[Translation]]]:
        numbers = [crc32(np.asarray(ids, np.int32).tobytes()) >> 1 for ids in sources]
        for index, samples in self._sampler.samples(params, sources, numbers, self.decoding.samples):
            texts = [each.text for each in samples]
            best = expected_utilities(texts, self._utility).most_common(num_results)
            yield index, [samples[texts.index(text)]._replace(score=value) for text, value in best]


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
