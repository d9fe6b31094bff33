"""The last lines of ``quickstart``."""

import re
import shlex
from pathlib import Path

from transformer_jax.__main__ import main
from transformer_jax.commands import quickstart
from transformer_jax.commands.flags import parse
from transformer_jax.commands.registry import load_command
from transformer_jax.config import resolve


def test_it_leads_to_the_live_page_and_to_own_text(monkeypatch, capsys):
    done = {}

    def pretended(name):
        return load_command(name)._replace(run=lambda values: done.update({name: values}) or 0)

    monkeypatch.setattr(quickstart, "load_command", pretended)
    assert main(["quickstart", "--workdir=some where/first"]) == 0
    assert [*done] == ["train", "evaluate", "attention", "explore"]
    assert done["explore"].live and done["explore"].output is None
    told, _, after = capsys.readouterr().out.partition("Next, for example:\n")
    assert Path("some where/first/live.html").absolute().as_uri() in told.splitlines()[-2], (
        "a path with a space can be clicked"
    )
    lines = [line.strip() for line in after.splitlines()]
    next_steps = [shlex.split(line.rpartition("| ")[2])[1:] for line in lines if "transformer-jax " in line]
    assert [step[0] for step in next_steps] == ["translate", "train"]
    for name, *flags in next_steps:
        parse(load_command(name).flags, flags)
    assert {"--config=text", "--budget=20m", "--workdir=some where/mine"} < set(next_steps[1])


def test_its_curves_have_five_points():
    training = resolve("quickstart").training
    assert training.num_updates == 5 * training.evaluate_every == 5 * training.checkpoint_every
    assert training.keep_last == 5, "the slider of the live page has them all"


def test_help_of_train_begins_with_own_text_and_a_budget(capsys):
    assert main(["train", "--help"]) == 0
    text = re.sub(r" \\\n +", " ", capsys.readouterr().out)
    example = text.partition("Example:\n")[2].partition("--workdir")[0]
    assert "--config=text --config.data.train=" in example and "--budget=" in example
