"""The annotated papers are as new as the code, their examples print what they say, their commands and pictures exist."""

import contextlib
import importlib.util
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_jax.commands.flags import parse
from transformer_jax.commands.registry import load_command
from transformer_jax.config.recipes import find_recipe

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("annotated_transformer.md", "annotated_attention.md", "figures.md")
QUICK = ("figure schedule", "figure smoothing")
COMMAND = re.compile(r"^    transformer-jax (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")


@pytest.fixture(scope="module")
def annotate():
    spec = importlib.util.spec_from_file_location("annotate", ROOT / "docs" / "annotate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["annotate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["annotate"]


def text_of(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands_of(name):
    return [shlex.split(line) for line in COMMAND.findall(text_of(name))]


def test_pages_and_notebooks_are_as_new_as_the_code(annotate):
    stale = [file.name for file, content in annotate.generated().items() if file.read_text("utf-8") != content]
    assert stale == [], "python docs/annotate.py writes them again"


def test_the_source_is_that_of_the_name(annotate, tmp_path):
    file = tmp_path / "transformer_jax" / "some.py"
    file.parent.mkdir()
    file.write_text("class A:\n    @property\n    def b(self):\n        return 1\n\n    c = 2\n")
    assert annotate.source_of("some.py", "A.b", tmp_path) == "@property\ndef b(self):\n    return 1"
    with pytest.raises(LookupError, match=r"some.py has no A.d"):
        annotate.source_of("some.py", "A.d", tmp_path)


def test_a_notebook_has_the_examples_as_cells_with_what_they_print(annotate):
    cells = annotate.notebook("# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nB\n\n```python\nx = 2\n```\n")[
        "cells"
    ]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", "# A"),
        ("code", "print(1)"),
        ("markdown", "B"),
        ("code", "x = 2"),
    ]
    assert [output["text"] for output in cells[1]["outputs"]] == [["1\n"]]
    assert cells[3]["outputs"] == []


@pytest.mark.parametrize("name", PAGES[:2])
def test_examples_print_what_the_page_says(annotate, name):
    names: dict[str, object] = {}
    examples = annotate.examples(text_of(name))
    assert examples
    for example in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example.code, names)
        assert printed.getvalue() == example.printed


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_one_and_every_link_leads_somewhere(name):
    for command, *arguments in commands_of(name):
        values = parse(load_command(command).flags, arguments)
        if "config" in values and values.config:
            find_recipe(values.config.partition(":")[0])
    text = text_of(name)
    assert [link for link in LINK.findall(text) if not (ROOT / "docs" / link).exists()] == []


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in a folder of its own, where it also writes what it would write elsewhere."""
    monkeypatch.chdir(tmp_path)

    def in_folder(command, *arguments):
        found = load_command(command)
        pairs = [each.partition("--output=") for each in arguments]
        flags = [f"--output={Path(output).name}" if output else before for before, _, output in pairs]
        assert found.run(parse(found.flags, flags)) == 0

    return in_folder


def figures_without_a_run():
    found = {" ".join(each): each for name in PAGES for each in commands_of(name)}
    return [each for text, each in found.items() if each[0] == "figure" and "--workdir" not in text]


def test_quick_commands_run(run, tmp_path):
    for each in figures_without_a_run():
        if " ".join(each).startswith(QUICK):
            run(*each)
    assert {path.name for path in tmp_path.iterdir()} >= {"schedule.png", "smoothing.png"}


@pytest.mark.slow
def test_every_figure_that_needs_no_run_is_drawn(run, tmp_path):
    for each in figures_without_a_run():
        run(*each)
    assert len(list(tmp_path.iterdir())) == len(figures_without_a_run())


@pytest.mark.slow
@pytest.mark.parametrize("name", [Path(page).stem for page in PAGES[:2]])
def test_the_notebook_runs_in_a_fresh_process(name):
    cells = [cell for cell in json.loads(text_of(f"{name}.ipynb"))["cells"] if cell["cell_type"] == "code"]
    program = "\n".join("".join(cell["source"]) for cell in cells)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=300)
    printed = "".join("".join(output["text"]) for cell in cells for output in cell["outputs"])
    assert (result.returncode, result.stdout) == (0, printed), result.stderr
