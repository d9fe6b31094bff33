"""The metric that selects: which way is better, and of equals the newest."""

import pytest

from transformer_jax.config import ExperimentConfig, Metric, from_dict

MORE, LESS = Metric("bleu", "maximize", "BLEU", digits=2), Metric("bits_per_byte", "minimize")


@pytest.mark.parametrize(("metric", "best"), [(MORE, 3), (LESS, 4)])
def test_the_best_step_by_direction(metric, best):
    assert metric.best_step({1: 2.0, 2: 3.0, 3: 3.0, 4: 1.0}) == best
    assert metric.best_step({1: 2.0, 9: 2.0, 5: 2.0}) == 9


def test_equal_is_not_better():
    for metric in (MORE, LESS):
        assert not metric.is_better(1.0, 1.0)
        assert metric.is_better(2.0, 1.0) != metric.is_better(1.0, 2.0)
    assert LESS.is_better(1.0, 2.0)


def test_each_task_has_one():
    assert ExperimentConfig().selection == MORE
    assert from_dict({"task": "language_model"}).selection == LESS
    assert (LESS.key, LESS.label, MORE.label) == ("validation/bits_per_byte", "bits per byte", "BLEU")
