"""Translations drawn from a model instead of searched for."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PAD_ID, Array, Int, PyTree
from transformer_jax.decoding.beam_search import length_penalty_divisor
from transformer_jax.decoding.sampling import Samples, SamplingRule, row_keys, sample
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.tasks.translation.sources import encode_sources
from transformer_jax.tasks.translation.trained_run import TrainedRun
from transformer_jax.tasks.translation.translator import NOTHING, Translation, init_cache, translation_of
from transformer_jax.training.sharding import everywhere, put_rows, row_groups, whole_over_fsdp


class Sampler:
    """Draws translations with one model by one rule; compiled programs are kept."""

    def __init__(self, trained: TrainedRun, rule: SamplingRule, seed: int = 0) -> None:
        self._tokenizers, self._config, self._mesh = trained.tokenizers, trained.config.decoding, trained.mesh
        self._params, self._key = whole_over_fsdp(trained.params, trained.mesh), jax.random.key(seed)
        draw = partial(drawn, trained.model, rule, self._config.max_extra_tokens)
        self._draw = jax.jit(draw, out_shardings=everywhere(trained.mesh))

    def translate(
        self, sentences: Sequence[str], *, num_results: int = 1, name: str = "sentence", first: int = 1
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, in the order of ``sentences``; nothing for an empty one.

        What is drawn for a sentence depends on the seed, its number (from ``first`` on) and its text, and on nothing else;
        fewer results are the first of more. One that reaches its most tokens ends there.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``.
        """
        limit, batch_tokens = self._config.max_source_tokens, self._config.batch_tokens
        asked, sources = encode_sources(self._tokenizers.source, sentences, limit, name, first)
        owners = np.repeat(np.array(asked, np.int64), num_results)
        numbers = np.stack([owners + first - 1, np.tile(np.arange(num_results), len(asked))], axis=1)
        copies = [ids for ids in sources for _ in range(num_results)]
        found = [NOTHING] * len(copies)
        for batch in source_batches(copies, batch_tokens=batch_tokens, row_multiple=row_groups(self._mesh)):
            row_ids = np.zeros((len(batch.ids), 2), np.int32)
            row_ids[: len(batch.indices)] = numbers[batch.indices]
            samples = jax.device_get(self._draw(self._params, *put_rows((batch.ids, row_ids), self._mesh), self._key))
            for index, ids, length, log_prob in zip(batch.indices, *samples, strict=False):
                score = log_prob / length_penalty_divisor(length, self._config.length_penalty)
                found[index] = translation_of(ids[:length], float(score), self._tokenizers)
        results: list[list[Translation]] = [[] if each.strip() else [NOTHING] for each in sentences]
        for owner, translation in zip(owners, found, strict=True):
            results[owner].append(translation)
        return results


def drawn(
    model: Module,
    rule: SamplingRule,
    extra: int,
    params: PyTree,
    source_ids: Int[Array, "B S"],
    row_ids: Int[Array, "B 2"],
    key: Array,
) -> Samples:
    """A translation of each row drawn by ``rule``, at most ``extra`` tokens longer than its source.

    ``row_ids``: numbers of the sentence and of the copy, from 0.
    """
    lengths = jnp.sum(source_ids != PAD_ID, axis=1, dtype=jnp.int32)
    limits, most = jnp.where(lengths > 0, lengths + extra, 0), source_ids.shape[1] + extra
    cache = init_cache(model, 1, params, source_ids, most)
    step = partial(call, model, params, "decode_step")
    keys = row_keys(key, row_ids[:, 0], row_ids[:, 1])
    return sample(step, cache, keys=keys, max_lengths=limits, max_length=most, rule=rule)
