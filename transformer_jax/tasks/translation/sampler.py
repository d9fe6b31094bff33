"""Samples of translations."""

from collections.abc import Iterator, Sequence
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.decoding.beam_search import DecodeStep, Hypotheses, Rules
from transformer_jax.decoding.sampling import SamplingRule, cache_with_keys, row_keys, sampled_search, step_beside_keys
from transformer_jax.decoding.segmented_search import SearchBatch, SegmentedSearch
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.translation.translator import (
    NOTHING,
    InOrder,
    OnTranslation,
    TextTranslator,
    Translation,
    Translator,
    devices_of_search,
    init_cache,
    steps_of,
    translation_of,
)
from transformer_jax.training.sharding import put_rows, unshard_fsdp

# Samples in a row of a batch. Each attends to the cache slots of all.
MAX_SAMPLES = 8


class Sampler(TextTranslator):
    """Samples translations from the model of a translator by one rule, and keeps programs."""

    def __init__(self, translator: Translator, rule: SamplingRule) -> None:
        self._translator, self._rule = translator, rule
        self._search_for = cache(self._new_search)  # It keeps compiled programs.

    def translate_each(
        self,
        params: PyTree,
        sentences: Sequence[str],
        on_translation: OnTranslation,
        *,
        seed: int = 0,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
    ) -> None:
        """Draw ``num_results`` translations of every sentence; of a blank one, one empty text.

        The samples of a sentence depend only on the seed, its number (counted from ``first``) and
        its text. Fewer results are the first of more. A sample is cut at its length limit. Raises
        SentenceTooLong if one is longer than ``decoding.max_source_tokens`` or the model allows.
        """
        nonempty, sources = self._translator.encode_sources(sentences, name, first)
        params = unshard_fsdp(params, self._translator.mesh, self._translator.compute_dtype), jax.random.key(seed)
        in_row = -(-num_results // -(-num_results // MAX_SAMPLES))
        copies = range(0, num_results, in_row)
        parts = [(index, copy) for index in range(len(sources)) for copy in copies]
        numbers = np.array([(nonempty[index] + first - 1, copy) for index, copy in parts], np.int32).reshape(-1, 2)
        drawn: list[dict[int, list[Translation]]] = [{} for _ in sources]
        ordered = InOrder(on_translation)

        def on_done(rows: np.ndarray, samples: Hypotheses) -> None:
            for row, part in enumerate(rows):
                index, copy = parts[part]
                results = zip(samples.ids[row], samples.scores[row], samples.lengths[row], strict=True)
                source, limit = sources[index], self._translator.limit_of(sources[index])
                drawn[index][copy] = [
                    translation_of(ids[:length], score, self._translator.tokenizers, source, limit)
                    for ids, score, length in results
                ]
                if len(drawn[index]) == len(copies):
                    translations = [sample for copy in copies for sample in drawn[index].pop(copy)]
                    ordered.add(nonempty[index], translations[:num_results])

        for index in sorted(set(range(len(sentences))).difference(nonempty)):
            ordered.add(index, [NOTHING])
        batches = self._batches([sources[index] for index, _ in parts], numbers)
        self._search_for(in_row).search(params, batches, on_done)

    def _batches(self, sources: Sequence[list[int]], numbers: np.ndarray) -> Iterator[SearchBatch]:
        """Yield sources with ``numbers`` [N, 2] of the sentence and the row's first sample."""
        for batch in self._translator.batches(sources, ()):
            of_batch = np.where(batch.indices[:, None] >= 0, numbers[batch.indices], 0)
            shape = jax.ShapeDtypeStruct(of_batch.shape, of_batch.dtype)
            inputs = batch.inputs, put_rows(of_batch, self._translator.mesh)
            yield batch._replace(inputs=inputs, padded_inputs=(batch.padded_inputs, shape))

    def _new_search(self, samples: int) -> SegmentedSearch:
        model, rules = self._translator.model, Rules(samples, samples, self._translator.decoding.length_penalty)
        init, search = partial(_cache_of_samples, model, samples), sampled_search(rules, self._rule)

        def make_step(params_and_key: PyTree) -> DecodeStep:
            return step_beside_keys(steps_of(model)(params_and_key[0]))

        return SegmentedSearch(init, make_step, search, devices_of_search(self._translator.mesh))


def _cache_of_samples(
    model: Module, samples: int, params_and_key: PyTree, inputs: tuple[Array, Int[Array, "B 2"]], capacity: int
) -> DecodeCache:
    """Return the encoded sources before the first token, with the keys of samples."""
    (params, key), (source_ids, numbers) = params_and_key, inputs
    keys = jax.vmap(row_keys)(row_keys(key, numbers[:, 0]), numbers[:, 1:] + jnp.arange(samples)[None])
    return cache_with_keys(init_cache(model, samples, params, source_ids, capacity), keys)
