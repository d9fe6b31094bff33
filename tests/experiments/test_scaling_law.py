"""The law of the loss in parameters and tokens: recovered where it is exact, and refused where runs do not determine it."""

import itertools
import json
from types import SimpleNamespace

import pytest

from transformer_jax.config import DataError, resolve

SIZES, DURATIONS = (1e5, 3e5, 1e6, 3e6), (1e6, 4e6, 16e6)
PLAIN = resolve("quickstart")


@pytest.fixture
def scaling(script):
    return script("scaling_law", "scaling")


@pytest.fixture
def law(scaling):
    return scaling.ScalingLaw(1.5, 0.8, 0.4, 0.9, 0.3, n0=9e22**0.25, d0=4e6)


@pytest.fixture
def points(scaling, law):
    return [scaling.Point("run", int(n), int(d), law.loss(n, d)) for n, d in itertools.product(SIZES, DURATIONS)]


@pytest.fixture
def summaries(tmp_path):
    """What ``summarize`` reads of runs that end at these points."""

    def write(points, config=PLAIN):
        runs = []
        for number, point in enumerate(points):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "metrics.jsonl").write_text(json.dumps({"step": 5, "validation/loss": point.loss}) + "\n")
            sizes = {"parameters": point.parameters, "target_tokens": point.tokens}
            is_finished = point.name != "unfinished"
            runs.append(
                SimpleNamespace(
                    name=str(number), folder=folder, config=config, updates=5, is_finished=is_finished, **sizes
                )
            )
        return runs

    return write


def test_recovers_the_law_of_exact_losses_and_resists_one_bad_run(scaling, law, points):
    assert scaling.fit(points) == pytest.approx(law, rel=0.02)
    diverged = [*points[:-1], points[-1]._replace(loss=9.0)]
    assert scaling.fit(diverged) == pytest.approx(law, rel=0.1)
    assert all(each == pytest.approx(law, rel=0.1) for each in scaling.bootstrap(points, law, resamples=5))


def test_predicts_the_largest_run_without_fitting_it(scaling, law, points, summaries, tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "RESAMPLES", 5)
    largest, unfinished = scaling.Point("run", 10**7, 64 * 10**6, 7.0), scaling.Point("unfinished", 10**8, 10**8, 1.0)
    runs = summaries([*points, largest, largest._replace(loss=6.0), unfinished])
    text = " ".join(map(str, scaling.scaling_section(runs, tmp_path / "scaling.png").blocks))
    for words in (f"Predicted loss {law.loss(*largest[1:3]):.3f}", "reached 6.500", "not validated at the end: 14."):
        assert words in text
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


def test_runs_that_determine_no_law_are_refused(scaling, points, summaries, tmp_path):
    small = [each for each in points if each.parameters < 2e5]
    with pytest.raises(DataError, match="found 2 with 1 numbers of parameters and 2 of"):
        scaling.scaling_section(summaries(small), tmp_path / "none.png")
    for key, values in {"tokenizer.vocabulary_size": ["77", "78"], "data.source": ["copy", "reverse"]}.items():
        runs = [SimpleNamespace(config=resolve("quickstart", [(key, value)])) for value in values]
        with pytest.raises(DataError, match=f"differ in {key}"):
            scaling.scaling_section(runs, tmp_path / "none.png")
