"""Which folders are meant, and what they are called."""

from pathlib import Path

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.tools.reports.run_folders import run_of, short_names


def test_a_side_is_a_run_or_an_evaluation_in_one(make_run, tmp_path):
    run = make_run("run")
    for name in ("evaluation-test-1.json", "evaluation-test-1.txt"):
        (run / name).write_text("")
        assert run_of(run / name) == run_of(run) == run
    stray = tmp_path / "evaluation-test-1.txt"
    stray.write_text("")
    for path, problem in (
        (stray, "no config.json in"),
        (tmp_path, "no config.json in"),
        (tmp_path / "nowhere", "does not exist"),
    ):
        with pytest.raises(ConfigError, match=problem):
            run_of(path)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/runs/a", "/runs/b"], ["a", "b"]),
        (["/a/x/run", "/b/x/run", "/b/other"], ["a/x/run", "b/x/run", "other"]),
        (["/run", "/a/run"], ["//run", "a/run"]),
        (["/a/run"], ["run"]),
    ],
)
def test_names_are_as_short_as_can_be(paths, names):
    assert short_names([Path(path) for path in paths]) == names
