"""The command ``figure``: names, files, and what it refuses."""

import pytest

from transformer_jax.commands.flags import parse
from transformer_jax.config import ConfigError
from transformer_jax.tools.pictures.figure_command import figure


def draw(*arguments):
    return figure.run(parse(figure.flags, arguments))


def test_what_it_refuses():
    for arguments, message in (
        ([], "takes one name .got none"),
        (["masks"], "takes one name .got masks.; names are architecture, schedule"),
        (["schedule", "--output=a.pdf"], "is a file that ends in .png"),
        (["schedule", "--config=nowhere"], "nowhere"),
    ):
        with pytest.raises(ConfigError, match=message):
            draw(*arguments)


def test_figures_are_drawn_with_their_numbers(tmp_path, capsys):
    assert draw("schedule", f"--output={tmp_path / 'rate.png'}", "--config.optimizer.warmup_updates=500") == 0
    assert "peak 1.976e-03 at update 500" in capsys.readouterr().out
    assert (tmp_path / "rate.png").read_bytes()[:4] == b"\x89PNG"
    assert draw("architecture", f"--output={tmp_path / 'model.svg'}", "--config=quickstart") == 0
    assert "quickstart: " in capsys.readouterr().out and "<svg" in (tmp_path / "model.svg").read_text(encoding="utf-8")
