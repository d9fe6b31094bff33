"""A trained translation model, as the explorer asks it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import ConfigError
from transformer_jax.decoding.beam_search import Rules
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.evaluation.word_alignment import GoldAlignment
from transformer_jax.models.inspection import KINDS
from transformer_jax.models.interface import call
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tasks.translation.pairs import encode_pairs, tokens_of_pair
from transformer_jax.tasks.translation.soft_alignment import cross_attention
from transformer_jax.tasks.translation.task import TranslationTask
from transformer_jax.tasks.translation.translator import init_cache, limits_of, require_translatable
from transformer_jax.tools.explorer.attention_readings import attention_readings
from transformer_jax.tools.explorer.head_alignment import head_error_rates
from transformer_jax.tools.explorer.head_statistics import HeadStatistics, head_statistics
from transformer_jax.tools.explorer.reading import LAYER, AttentionReading, NamedArray, Reading
from transformer_jax.tools.explorer.rollout import decoder_rollout, rollout
from transformer_jax.tools.explorer.search_tree import Forced, SearchTree
from transformer_jax.tools.explorer.searches import Searches
from transformer_jax.tools.explorer.teacher_forcing import TeacherForcing


class TranslationReader:
    """Reads pairs with one run."""

    def __init__(self, trained: TrainedRun[TranslationTask]) -> None:
        self._trained = trained

    @cached_property
    def _teacher_forcing(self) -> TeacherForcing:
        return TeacherForcing(self._trained.model, self._trained.config.model.longest_sequence)

    @cached_property
    def _searches(self) -> Searches:
        decoding, model = self._trained.config.decoding, self._trained.model
        if decoding.diverse_groups > 1:
            raise ConfigError("decoding.diverse_groups: only a search in one group is replayed; set it to 1")
        return Searches(
            partial(init_cache, model, decoding.beam_width),
            lambda params: partial(call, model, params, "decode_step"),
            Rules(decoding.beam_width, decoding.beam_width, decoding.length_penalty, stop=decoding.stop),
            self._trained.tokenizers.target,
        )

    def read(self, text: str, target: str | None = None, *, with_gradients: bool = True) -> Reading:
        """The pair of a text and ``target``, or the run's own translation of it.

        Raises DataError when a side is longer than ``decoding.max_source_tokens``.
        """
        trained = self._trained
        if target is None:
            target = trained.task.translator.translate(trained.params, [text], name="--text")[0][0].text
        pair = tokens_of_pair(trained.tokenizers, text, target)
        lengths = np.array([max(len(pair.source_ids), len(pair.target_ids))])
        require_translatable(lengths, trained.config.decoding.max_source_tokens, "--text")
        tokens = {
            "source": pair.source_pieces,
            "target": pair.target_pieces,
            "input": ["<s>", *pair.target_pieces[:-1]],
        }
        passed = self._teacher_forcing(
            trained.params, [pair.source_ids, pair.target_ids], with_gradients=with_gradients
        )
        readings = attention_readings(passed.records, {name: len(pieces) for name, pieces in tokens.items()})
        gradients = {
            kind: NamedArray((KINDS[kind].rows, KINDS[kind].columns), values)
            for kind, values in zip(("cross", "decoder"), passed.gradients, strict=False)
        }
        return Reading(text, target, tokens, with_rollout(readings), gradients, passed.log_probs.tolist())

    def search(self, text: str, alternatives: int) -> SearchTree:
        """The beam search for a text, and what it finds when forced to begin with the best ``alternatives``."""
        return self._searches.tree(self._trained.params, *self._source_of(text), alternatives)

    def forced(self, text: str, prefix: Sequence[int]) -> Forced:
        """The best translation that begins with these tokens; raises DataError where none can."""
        return self._searches.forced(self._trained.params, *self._source_of(text), prefix)

    def statistics(self, split: str, limit: int) -> list[HeadStatistics]:
        """Averages over the first ``limit`` pairs of a split of the data of the run."""
        trained = self._trained
        pairs = trained.task.evaluator.pairs(trained.config.data.split_name(split), limit)
        sides = encode_pairs(
            trained.tokenizers,
            [pair.source for pair in pairs],
            [pair.target for pair in pairs],
            trained.config.decoding.max_source_tokens,
        )
        longest = trained.config.model.longest_sequence
        return head_statistics(trained.model, trained.params, trained.tokenizers, sides, longest)

    def error_rates(self, pairs: Sequence[tuple[str, str]], gold: Sequence[GoldAlignment], name: str) -> np.ndarray:
        """Alignment error rate [L, H] of every head that attends to the source; ``name`` is the file of ``gold``."""
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        weights = cross_attention(self._trained, sources, targets, partial(jnp.stack, axis=1))
        return head_error_rates(weights, self._trained.tokenizers, pairs, gold, name)

    def _source_of(self, text: str) -> tuple[np.ndarray, int, int]:
        """The source ids, padded; the most tokens of a translation; the room that its arrays have."""
        config = self._trained.config.decoding
        ids = [*self._trained.tokenizers.source.encode(text), EOS_ID]
        require_translatable(np.array([len(ids)]), config.max_source_tokens, "text")
        (batch,) = source_batches([ids], batch_tokens=1)
        extra = config.max_extra_tokens
        return batch.ids, int(limits_of(batch.ids, extra)[0]), batch.ids.shape[1] + extra


def with_rollout(readings: list[AttentionReading]) -> list[AttentionReading]:
    """The same with the rollout of every kind, where all three are there; an RNN has no stack of attentions."""
    by_kind = {each.kind: each for each in readings}
    if by_kind.keys() != KINDS.keys():
        return readings
    encoder, decoder, cross = (by_kind[kind].weights.values for kind in ("encoder", "decoder", "cross"))
    of_encoder = rollout(encoder)
    to_target, to_source = decoder_rollout(decoder, cross, of_encoder[-1])
    found: Mapping[str, np.ndarray] = {"encoder": of_encoder, "decoder": to_target, "cross": to_source}
    return [replace(each, rollout=NamedArray((LAYER, each.rows, each.columns), found[each.kind])) for each in readings]
