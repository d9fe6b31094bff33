"""The command ``figure``: names, files, and what it refuses."""

import pytest

from transformer_jax.commands.figure import figure
from transformer_jax.commands.flags import parse
from transformer_jax.config import ConfigError


def draw(*arguments):
    return figure.run(parse(figure.flags, arguments))


def test_what_it_refuses():
    for arguments, message in (
        ([], "takes one name, found none"),
        (["schedule", "--output=a.pdf"], "is a file that ends in .png"),
        (["schedule", "--config=configs/quickstart.py", "--workdir=runs/a"], "not both"),
        (["schedule", "--workdir=nowhere"], "nowhere"),
        (["masks", "--config=configs/language_model.py:quick"], "takes task=translation"),
        (["masks", "--config=configs/seq2seq.py:bahdanau"], "seq2seq.py:bahdanau is recurrent, without these masks"),
        (["masks", "--config.model.attention=qk_norm,sliding_window"], "model.attention=sliding_window has other mask"),
        (["scaling", "--config.model.d_model=64"], "--config: scaling does not read it; leave it out"),
    ):
        with pytest.raises(ConfigError, match=message):
            draw(*arguments)


def test_figures_without_training_are_drawn_with_their_numbers(tmp_path, capsys):
    assert draw("schedule", f"--output={tmp_path / 'rate.png'}", "--config.optimizer.warmup_updates=500") == 0
    assert "peak 1.976e-03 at update 500" in capsys.readouterr().out
    assert draw("smoothing", f"--output={tmp_path / 'smoothing.png'}") == 0
    assert {path.read_bytes()[:4] for path in tmp_path.glob("*.png")} == {b"\x89PNG"}
