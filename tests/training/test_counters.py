"""Counters: what skipped updates leave in them."""

import numpy as np

from transformer_jax.training.counters import Counters
from transformer_jax.training.losses import LossSums
from transformer_jax.training.step import StepMetrics


def metrics(loss: float, *, finite: bool) -> StepMetrics:
    sums = LossSums(*(np.float32(value) for value in (loss, loss, 2.0, 4.0)))
    return StepMetrics(sums, np.float32(1.0), np.asarray(finite))


def test_a_skipped_update_is_counted_and_adds_nothing():
    counters = Counters()
    counters.add(metrics(8.0, finite=True))
    counters.add(metrics(float("nan"), finite=False))
    assert counters.skipped == 1
    assert counters.total_tokens == 4.0
    restored = Counters.from_json(counters.to_json())
    window = restored.take_window()
    assert window["train/loss"] == 2.0
    assert window["train/skipped_updates"] == 1.0
    assert restored.take_window()["train/loss"] == 0.0, "nothing was added since"


def test_without_skipped_updates_the_log_has_no_word_of_them():
    counters = Counters()
    counters.add(metrics(8.0, finite=True))
    assert "train/skipped_updates" not in counters.take_window()
