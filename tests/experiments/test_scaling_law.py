"""The law of the loss in parameters and tokens: recovered where it is exact, and refused where runs
do not determine it."""

import itertools

import pytest

SIZES, DURATIONS = (1e5, 3e5, 1e6, 3e6), (1e6, 4e6, 16e6)


@pytest.fixture
def scaling(script):
    return script("scaling_law", "scaling")


@pytest.fixture
def law(scaling):
    return scaling.ScalingLaw(1.5, 0.8, 0.4, 0.9, 0.3, n0=9e22**0.25, d0=4e6)


@pytest.fixture
def points(scaling, law):
    return [scaling.Point("run", int(n), int(d), law.loss(n, d)) for n, d in itertools.product(SIZES, DURATIONS)]


def test_recovers_the_law_of_exact_losses_and_resists_one_bad_run(scaling, law, points):
    assert scaling.fit(points) == pytest.approx(law, rel=0.02)
    diverged = [*points[:-1], points[-1]._replace(loss=9.0)]
    assert scaling.fit(diverged) == pytest.approx(law, rel=0.1)
    assert all(each == pytest.approx(law, rel=0.1) for each in scaling.bootstrap(points, law, resamples=5))
