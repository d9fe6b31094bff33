"""A corpus whose sides are shifted against each other is told from one that is not, with the line."""

import random

import numpy as np
import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import from_dict
from transformer_jax.data.synthetic.grammar import GrammarCorpus
from transformer_jax.runs import trainer
from transformer_jax.runs.run import TrainingDiverged
from transformer_jax.tools.data_check.line_shift import GROUP, line_shift, shift_warnings

LINES = 1200


def found(sources, targets):
    lengths = np.array([list(map(len, pair)) for pair in zip(sources, targets, strict=True)])
    return line_shift(range(len(lengths)), lengths)


def with_extra_line(targets, line):
    """A line too many before the one at ``line``, from 1."""
    return [*targets[: line - 1], "noch eine Zeile", *targets[line - 1 : -1]]


def without_line(targets, line):
    return [*targets[: line - 1], *targets[line:], "noch eine Zeile"]


@pytest.fixture(scope="module")
def sides():
    return tuple(zip(*GrammarCorpus(LINES, 0).pairs("train"), strict=True))


@pytest.fixture(scope="module")
def lengths_only():
    """Other words, like lengths, as between scripts."""
    rng = random.Random(0)
    lengths = [rng.randrange(4, 30) for _ in range(LINES)]
    sources = [" ".join(rng.choices("bcdfg", k=length)) for length in lengths]
    return sources, ["".join(rng.choices("\u4e00\u4e01\u4e03", k=length + rng.randrange(4))) for length in lengths]


@pytest.mark.parametrize("corpus", ["sides", "lengths_only"])
def test_the_line_from_which_on_a_side_is_shifted(corpus, request):
    sources, targets = request.getfixturevalue(corpus)
    assert found(sources, targets).stretches == [(1, 0)]
    for change, lag in ((with_extra_line, 1), (without_line, -1)):
        assert found(sources, change(targets, 1)).stretches == [(1, lag)]
        (start, first), (line, second) = found(sources, change(targets, 701)).stretches
        assert (start, first, second) == (1, 0, lag) and abs(line - 701) <= 8
    # Lines are missing in one place, and too many in another.
    mended = found(sources, without_line(without_line(with_extra_line(with_extra_line(targets, 301), 301), 801), 801))
    assert [lag for _, lag in mended.stretches] == [0, 2, 0] and mended.is_shifted


def test_where_nothing_is_known_nothing_is_said(sides):
    sources, targets = sides
    unknown = found(sources, random.Random(0).sample(targets, len(targets)))
    assert (unknown.stretches, unknown.is_known) == ([(1, 0)], False)
    assert found(sources, targets).is_known
    assert not found(sources[: GROUP - 1], with_extra_line(targets, 1)[: GROUP - 1]).is_shifted
    assert found([], []).stretches == found(["a"] * 100, ["b"] * 100).stretches == [(1, 0)]


@pytest.fixture
def corpora(tmp_path):
    words = np.random.default_rng(0).integers(100, 10_000, (300, 5)).astype(str)
    lines = [" ".join(line[: 1 + number % 5]) for number, line in enumerate(words)]
    for name, shift in (("good", 0), ("bad", 1)):
        pairs = zip(lines, lines[shift:], strict=False)
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return {name: f"{tmp_path}/{name}.tsv" for name in ("good", "bad")}


def test_each_shifted_corpus_has_a_warning(corpora):
    train = " ".join(f"{name}={path}" for name, path in corpora.items())
    data = {"source": "mixture", "train": train, "tags": "good=<g>", "source_language": "en", "target_language": "de"}
    (warning,) = shift_warnings(from_dict({"data": data}))
    assert "line n of en of bad translates line n-1 of de of bad" in warning
    data |= {"source": "text", "train": corpora["good"], "tags": ""}
    assert shift_warnings(from_dict({"data": data})) == shift_warnings(from_dict({"task": "language_model"})) == []


def test_train_prints_the_warning(corpora, tmp_path, monkeypatch, capsys):
    def diverge(*_: object, **__: object) -> None:
        raise TrainingDiverged

    monkeypatch.setattr(trainer, "run_training", diverge)
    settings = {"source": "text", "directory": "", "train": corpora["bad"], "held_out": 20, "target_language": "de"}
    settings |= {"source_language": "en"}
    overrides = [f"--config.data.{name}={value}" for name, value in settings.items()]
    assert main(["train", "--config=quickstart", *overrides, f"--workdir={tmp_path}/run"]) == 1
    assert "WARNING: the sides of the training text are shifted: from line 1 " in capsys.readouterr().err
