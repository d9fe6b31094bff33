"""A trained translation model, as the explorer asks it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from transformer_jax.explorer.attention_readings import KINDS, attention_readings
from transformer_jax.explorer.reading import LAYER, AttentionReading, NamedArray, Reading
from transformer_jax.explorer.rollout import decoder_rollout, rollout
from transformer_jax.explorer.teacher_forcing import TeacherForcing
from transformer_jax.tasks.translation.alignment import tokens_of_pair
from transformer_jax.tasks.translation.trained_run import TrainedRun
from transformer_jax.tasks.translation.translator import require_translatable


class TranslationSubject:
    """Reads pairs with one run."""

    def __init__(self, trained: TrainedRun) -> None:
        self._trained = trained

    @cached_property
    def _teacher_forcing(self) -> TeacherForcing:
        return TeacherForcing(self._trained.model, self._trained.config.model.longest_sequence)

    def read(self, text: str, target: str | None = None, *, with_gradients: bool = True) -> Reading:
        """The pair of a text and ``target``, or the run's own translation of it.

        Raises DataError when a side is longer than ``decoding.max_source_tokens``.
        """
        trained = self._trained
        if target is None:
            target = trained.translator.translate(trained.params, [text], name="--text")[0][0].text
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
            kind: NamedArray(KINDS[kind][2:], values)
            for kind, values in zip(("cross", "decoder"), passed.gradients, strict=False)
        }
        return Reading(text, target, tokens, with_rollout(readings), gradients, passed.log_probs.tolist())


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
