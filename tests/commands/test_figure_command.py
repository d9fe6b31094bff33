"""The command ``figure``: names, files, and what it refuses."""

import inspect
from types import SimpleNamespace

import pytest

from transformer_jax.commands.figure import figure, subject_of
from transformer_jax.commands.flags import parse
from transformer_jax.config import ConfigError, resolve, to_json
from transformer_jax.runs.run_directory import write_json
from transformer_jax.runtime.open_copies import OPEN
from transformer_jax.tools.pictures.figures import FIGURES


def draw(*arguments):
    return figure.run(parse(figure.flags, arguments))


def test_help_has_a_line_for_every_figure():
    for name, each in FIGURES.items():
        assert f"\n{name}: " in inspect.cleandoc(figure.run.__doc__) and callable(each.load())


def test_what_it_refuses():
    for arguments, message in (
        ([], "takes one name, found none"),
        (["position"], "did you mean positions"),
        (["schedule", "--output=a.pdf"], "is a file that ends in .png"),
        (["schedule", "--config=configs/quickstart.py", "--workdir=runs/a"], "not both"),
        (["schedule", "--workdir=nowhere"], "nowhere"),
        (["masks", "--config=configs/language_model.py:quick"], "takes task=translation"),
        (["masks", "--config=configs/seq2seq.py:bahdanau"], "seq2seq.py:bahdanau is recurrent, without these masks"),
        (["masks", "--config.model.attention=acausal"], "model.attention=acausal has other masks"),
        (
            ["masks", "--config.model.attention=qk_norm,sliding_window"],
            "model.attention=sliding_window has other masks",
        ),
        (["scaling", "--config.model.d_model=64"], "--config: scaling does not read it; leave it out"),
        (["scaling", "--workdir=runs/a"], "--workdir: scaling does not read it"),
        (["schedule", "--workdir=runs/a", "--checkpoint=5"], "--checkpoint: schedule does not read it"),
        (["heads", "--workdir=runs/a", "--others=runs/b"], "--others: heads does not read it"),
        (["masks", "--workdir=runs/a", "--limit=3"], "--limit: masks does not read it"),
    ):
        with pytest.raises(ConfigError, match=message):
            draw(*arguments)


def test_figures_without_training_are_drawn_with_their_numbers(tmp_path, capsys):
    assert draw("schedule", f"--output={tmp_path / 'rate.png'}", "--config.optimizer.warmup_updates=500") == 0
    assert "peak 1.976e-03 at update 500" in capsys.readouterr().out
    assert draw("smoothing", f"--output={tmp_path / 'smoothing.png'}") == 0
    assert {path.read_bytes()[:4] for path in tmp_path.glob("*.png")} == {b"\x89PNG"}


def test_a_copy_of_a_run_is_named_by_its_address(monkeypatch, tmp_path):
    monkeypatch.setitem(OPEN, tmp_path, SimpleNamespace(address="gs://bucket/run"))
    write_json(tmp_path / "config.json", to_json(resolve("configs/quickstart.py", [])))
    flags = parse(figure.flags, ["lengths", f"--workdir={tmp_path}", f"--others={tmp_path}"])
    subject = subject_of(flags, "")
    assert (subject.name, subject.others[0].name) == ("gs://bucket/run", "gs://bucket/run")


@pytest.mark.slow
def test_a_run_stands_for_its_recipe(run, tmp_path, capsys):
    output = tmp_path / "masks.png"
    assert draw("masks", f"--workdir={run}", f"--output={output}") == 0
    assert "padded  decoder, causal" in capsys.readouterr().out
    assert output.stat().st_size > 10_000
