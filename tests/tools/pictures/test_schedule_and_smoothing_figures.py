"""The learning rate of a recipe; the target of label smoothing."""

import numpy as np
import pytest

from transformer_jax.config import resolve
from transformer_jax.tools.pictures.schedule import schedule_numbers
from transformer_jax.tools.pictures.smoothing import smoothing_numbers


def test_the_base_model_peaks_where_its_warm_up_ends():
    numbers = schedule_numbers(resolve("configs/transformer_base.py", []))
    update, rate = numbers.peak
    assert update == 4000
    assert rate == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-6)
    assert numbers.updates[0] == 1
    assert numbers.rate[0] == pytest.approx(rate / 4000, rel=1e-5)


def test_another_schedule_with_the_same_settings():
    numbers = schedule_numbers(resolve("configs/quickstart.py", []), "constant")
    assert numbers.peak == (200, pytest.approx(3e-3))
    assert numbers.rate[-1] == pytest.approx(3e-3)


def test_the_smoothed_target_and_the_probability_it_asks_for():
    numbers = smoothing_numbers(0.2, classes=4)
    np.testing.assert_allclose(numbers.target, [0.85, 0.05, 0.05, 0.05], atol=1e-5)
    assert numbers.best == pytest.approx(0.85, abs=2e-3)
    above = numbers.probability > 0.851
    assert (numbers.gradient[0, above] > 0).all()
    assert (numbers.gradient[1] < 0).all()
    np.testing.assert_allclose(numbers.loss[1], -np.log(numbers.probability), atol=1e-5)
