"""One text through a model, teacher-forced: records of its attentions, gradients and probabilities, as arrays of the host."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config.data import padded_width
from transformer_jax.models.inspection import (
    AttentionRecord,
    attention_records,
    gradients_times_inputs,
    target_log_probs,
)
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import Tokens


class ForwardPass(NamedTuple):
    """``records`` by the path of the attention, padding included; [T, L] of each side, without; [T]."""

    records: Mapping[str, AttentionRecord]
    gradients: tuple[np.ndarray, ...]
    log_probs: np.ndarray


class TeacherForcing:
    """Passes of one model over one text at a time; compiled programs are kept, a few widths in all.

    ``longest``: the most positions that the model has, None where there is no end.
    """

    def __init__(self, model: Module, longest: int | None = None) -> None:
        self._longest = longest
        self._records = jax.jit(partial(attention_records, model))
        self._log_probs = jax.jit(partial(target_log_probs, model))
        self._gradients = jax.jit(partial(gradients_times_inputs, model))

    def __call__(self, params: PyTree, sides: Sequence[list[int]], *, with_gradients: bool = True) -> ForwardPass:
        """A pass over the ids of every side, the target last; without its gradients they are empty."""
        inputs = [self._padded(ids) for ids in sides]
        lengths = [len(ids) for ids in sides]
        records = jax.device_get(self._records(params, *inputs))
        log_probs = np.asarray(self._log_probs(params, *inputs))[: lengths[-1]]
        gradients: tuple[np.ndarray, ...] = ()
        if with_gradients:
            found = jax.device_get(self._gradients(params, *inputs))
            gradients = tuple(
                np.asarray(each, np.float32)[: lengths[-1], :length]
                for each, length in zip(found, lengths, strict=True)
            )
        return ForwardPass(records, gradients, log_probs)

    def _padded(self, ids: list[int]) -> Tokens:
        width = padded_width(len(ids), self._longest)
        return Tokens.from_ids(np.pad(np.asarray([ids], np.int32), ((0, 0), (0, width - len(ids)))))
