import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import DataError, resolve
from transformer_jax.tools.reports.scaling_law import Point, ScalingLaw, bootstrap, fit, scaling_section

SIZES, DURATIONS = (1e5, 3e5, 1e6, 3e6), (1e6, 4e6, 16e6)
LAW = ScalingLaw(1.5, 0.8, 0.4, 0.9, 0.3, n0=9e22**0.25, d0=4e6)


def points(law: ScalingLaw = LAW) -> list[Point]:
    return [Point("run", int(n), int(d), law.loss(n, d)) for n, d in itertools.product(SIZES, DURATIONS)]


def test_recovers_the_law_of_exact_losses_and_resists_one_bad_run():
    assert fit(points()) == pytest.approx(LAW, rel=0.02)
    diverged = [*points()[:-1], points()[-1]._replace(loss=9.0)]
    assert fit(diverged) == pytest.approx(LAW, rel=0.1)
    assert all(law == pytest.approx(LAW, rel=0.1) for law in bootstrap(points(), LAW, resamples=5))


def test_a_loss_that_does_not_depend_on_the_size_has_a_law():
    flat = [point._replace(loss=1.5 + (1e6 / point.tokens) ** 0.3) for point in points()]
    laws = bootstrap(flat, fit(flat), resamples=20)
    assert all(law.loss(1e5, 1e6) == pytest.approx(2.5, rel=0.05) for law in laws)


def test_optimal_size_has_the_least_loss_of_its_flops():
    """Hoffmann et al. 2022, equation 4: scaling N by C^a along the optimum leaves the derivative zero."""

    def best(flops: float) -> float:
        sizes = [1.01**power for power in range(700, 2500)]
        return min(sizes, key=lambda size: LAW.loss(size, flops / 6 / size))

    assert best(1e18) / best(1e16) == pytest.approx(100**LAW.optimal_exponent, rel=0.02)


@pytest.fixture
def write_runs(make_run):
    def write(chosen: list[Point]) -> None:
        for number, point in enumerate(chosen):
            losses = {"train/target_tokens": point.tokens, "validation/loss": point.loss, "validation/bleu": 1.0}
            run = make_run(f"runs/{number}", records=[{"step": 5, **losses}])
            (run / "run.json").write_text(json.dumps([{"parameters": point.parameters}]))
            if point.name != "unfinished":
                (run / "outcome.json").write_text(json.dumps({"reason": "finished"}))

    return write


def test_report_predicts_the_largest_run_without_fitting_it(write_runs, tmp_path, capsys):
    largest, unfinished = Point("run", 10**7, 64 * 10**6, 7.0), Point("unfinished", 10**8, 10**8, 1.0)
    write_runs([*points(), largest, largest._replace(loss=6.0), unfinished])
    assert main(["report", str(tmp_path / "runs"), "--fit", f"--output={tmp_path / 'out'}"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (f"Predicted loss {LAW.loss(*largest[1:3]):.3f}", "reached 6.500", "not validated at the end: 14."):
        assert words in printed
    assert (tmp_path / "out" / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("chosen", "tokenizer", "problem"),
    [
        ([each for each in points() if each.parameters < 2e5], {}, "found 2 with 1 numbers of parameters and 2 of"),
        ([Point("run", n, 20 * n, 3.0) for n in range(10**5, 10**6, 10**5)], {}, "do not grow together"),
        (points(), {"vocabulary_size": 77}, "differ in tokenizer.vocabulary_size"),
    ],
)
def test_runs_that_determine_no_law_are_refused(write_runs, make_run, tmp_path, capsys, chosen, tokenizer, problem):
    write_runs(chosen)
    make_run("runs/unfinished", {"tokenizer": tokenizer})
    assert main(["report", str(tmp_path / "runs"), "--fit", f"--output={tmp_path / 'out'}"]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())


def test_runs_that_hold_out_other_text_are_refused(make_run, tmp_path, capsys):
    for seed in (1, 2):
        make_run(f"runs/{seed}", {"seed": seed, "data": {"source": "text", "directory": "/a", "held_out": 9.0}})
    assert main(["report", str(tmp_path / "runs"), "--fit", f"--output={tmp_path / 'out'}"]) == 2
    assert "the runs differ in seed (1, 2)" in capsys.readouterr().err


def test_losses_with_other_terms_are_refused():
    configs = [resolve("word_vectors:quick", [("model.negatives", number)]) for number in "25"]
    with pytest.raises(DataError, match="differ in model.negatives"):
        scaling_section([SimpleNamespace(config=config) for config in configs], Path("none.png"))
