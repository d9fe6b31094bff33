"""Text for terminals: nothing is wider than the terminal, and no word is lost."""

import re

import pytest

from transformer_jax.__main__ import main
from transformer_jax.commands.registry import command_help
from transformer_jax.errors import colored
from transformer_jax.files.terminal import listing, paragraph, text_table
from transformer_jax.registry.index import commands

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0, and words after it"


@pytest.fixture(params=(50, 80, 120))
def columns(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def test_a_table_fits_and_keeps_its_words(columns):
    scores = [("BLEU lower-case", "98.35", SIGNATURE), ("chrF", "9.10", "")]
    runs = [("run", *(f"metric {number}" for number in range(9))), ("a", *map(str, range(9)))]
    for rows, alignment in ((scores, "lrl"), (runs, "l" + "r" * 9)):
        table = text_table(rows, alignment, columns=columns)
        assert max(map(len, table.split("\n"))) <= columns
        words = [word for row in rows for cell in row for word in re.findall(r"[\w.:-]+", cell)]
        assert sorted(set(re.findall(r"[\w.:-]+", table))) == sorted(set(words))
    assert len(text_table(runs, "l" + "r" * 9).split("\n")) == 2


def test_a_list_puts_meanings_beside_or_below_names(columns):
    text = listing(
        [("data.max_source_tokens", "Training pairs with more source tokens are left out."), ("seed", "Seed.")]
    )
    assert max(map(len, text.split("\n"))) <= columns
    assert ("tokens\n      Training" in text) is (columns == 50)
    assert paragraph("a b") == "a b"


@pytest.mark.parametrize("name", commands())
def test_help_fits_and_its_examples_stay_commands(name, monkeypatch):
    texts = {}
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        texts[width] = command_help(name)
    long = [line for line in texts[80].split("\n") if len(line) > 80 and not re.search("['/|]", line)]
    assert long == []
    joined = [re.sub(r" \\\n\s*", " ", text).split() for text in texts.values()]
    assert joined[0] == joined[1]


def test_errors_have_a_color_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["nonsense"]) == 2 and "\033" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["nonsense"]) == 2
    assert capsys.readouterr().err.startswith("\033[1;31mtransformer-jax:\033[0m 'nonsense' is not a command")
    assert colored("transformer-jax: WARNING: no").startswith("\033[1;33mtransformer-jax: WARNING:\033[0m no")
    assert colored("restoring") == "restoring"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in colored("transformer-jax: no")
