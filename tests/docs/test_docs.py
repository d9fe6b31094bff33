"""The documents: links lead somewhere, commands parse, recipes and settings exist, annotated papers
are as new as the code and their examples print what they say."""

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import yaml

import transformer_jax
from transformer_jax.commands.flags import overrides_of, parse
from transformer_jax.commands.registry import load_command
from transformer_jax.config import resolve
from transformer_jax.config.conversion import read_value
from transformer_jax.config.recipes import find_recipe
from transformer_jax.registry import index

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
# Text that stands for something a reader fills in.
PLACEHOLDERS = ("...", "RUN", "KEY=VALUE", "FILE", "COMMAND", "slurm|")


def test_every_link_leads_somewhere():
    broken = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target, anchor in LINK.findall(text):
            if target.startswith(("http://", "https://")):
                continue
            path = page.parent / target if target else page
            if not path.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and path.suffix == ".md" and anchor[1:] not in anchors(path):
                broken.append(f"{page.name}: {target}{anchor}")
    assert broken == []


def test_the_side_bar_has_every_page_once_and_readers_have_thirty_pages():
    tree = ast.parse((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"))
    (contents,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "CONTENTS"
    )
    folders = {part: "docs/internals" if part == "Internals" else "docs" for part in contents}
    listed = [(ROOT / folders[part] / name).resolve() for part, names in contents.items() for name in names.split()]
    pages = [page.with_suffix("") for page in PAGES if page != ROOT / "README.md"]
    assert sorted(listed) == sorted([*pages, ROOT / "docs" / "learn" / "tour"])
    assert len(list((ROOT / "docs").glob("*.md"))) <= 30


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


CODE = re.compile(r"(?ms)^```(?:sh|bash|text|console)?\n(.*?)^```|((?:^    [^\n]*\n?)+)|(?<!`)`([^`\n]+)`")


def commands_of(text: str) -> list[str]:
    """Every command in fences, in indented blocks and in the line."""
    found = []
    for fenced, indented, inline in CODE.findall(text):
        lines = re.sub(r"\\\n\s*", "", fenced or indented or inline).split("\n")
        starts = [re.sub(r"^(\$|srun) ", "", line.strip()) for line in lines]
        found += [line for line in starts if line.startswith("transformer-jax ")]
    return found


def commands() -> list[tuple[str, str]]:
    return [(page.name, line) for page in PAGES for line in commands_of(page.read_text(encoding="utf-8"))]


def test_every_experiment_is_listed():
    listed = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    folders = [file.parent.name for file in sorted((ROOT / "experiments").glob("*/README.md"))]
    assert [name for name in folders if f"(../experiments/{name}/README.md)" not in listed] == []


def test_commits_in_the_list_are_those_of_the_experiments():
    rows = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").split("\n| [")[1:]
    wrong = []
    for row in rows:
        name = re.search(r"experiments/(\w+)/README", row)[1]
        page = (ROOT / "experiments" / name / "README.md").read_text(encoding="utf-8")
        commits = re.findall(r"\b(?=\w*\d)[0-9a-f]{7,8}\b", row)
        wrong += [f"{name}: {commit}" for commit in commits if commit not in page]
    assert len(rows) > 15 and wrong == []


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_parse(page, line):
    words = shlex.split(re.split(r" [<>|] ?| #", line)[0])[1:]
    if words[0] not in index.commands() or len(words) == 1 or any(mark in line for mark in PLACEHOLDERS):
        assert words[0] in (*index.commands(), "COMMAND"), line
        return
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    expanded = [each for word in own for each in in_braces(word)]
    values = parse(load_command(words[0]).flags, [word for word in expanded if "--plugin" not in word])
    if "config" in values and values.config and not values.config.startswith("runs/"):
        find_recipe(values.config.partition(":")[0])
    for key, text in overrides_of(values) if "config_override" in values else ():
        read_value(key, text)


def in_braces(word: str) -> list[str]:
    found = re.fullmatch(r"(.*)\{(\w+),(\w+)\}(.*)", word)
    return [f"{found[1]}{ending}{found[4]}" for ending in (found[2], found[3])] if found else [word]


@pytest.fixture
def script(monkeypatch):
    """A script of docs/ as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield importlib.import_module
    for name in ("annotate", "kit_page", "page_figures", "theory_figures"):
        sys.modules.pop(name, None)


def test_pages_and_notebooks_are_as_new_as_the_code(script):
    written = script("annotate").generated() | script("kit_page").pages()
    stale = [file.name for file, content in written.items() if file.read_text("utf-8") != content]
    assert stale == [], "python docs/annotate.py and python docs/kit_page.py write them again"


def test_pictures_of_pages_are_drawn_from_tables_that_exist(script, tmp_path, monkeypatch):
    page_figures = script("page_figures")
    rows = page_figures.table("experiments/language_model/README.md", "bits per byte")
    assert len(rows) > 5 and all(1 < float(row["bits per byte"]) < 8 for row in rows)
    assert any(
        row["state"] == "pruned" for row in page_figures.table("experiments/tuned_recipe/results/search.md", "state")
    )
    monkeypatch.setattr(page_figures, "FIGURES", tmp_path)
    for draw in (page_figures.draw_bits, page_figures.draw_extending, page_figures.draw_floors):
        draw()
    assert {file.name for file in tmp_path.iterdir()} == {"bits.png", "extending.png", "floors.svg"}


def test_the_lesson_names_parts_of_the_model_of_the_quickstart():
    model = resolve("quickstart").model
    addresses = re.findall(r"`live\.html#([^`]+)`", (ROOT / "docs" / "learn" / "lesson.md").read_text(encoding="utf-8"))
    names = [name for each in addresses for name in dict(parse_qsl(each)).get("off", "").split(",") if name]
    assert len(addresses) >= 10 and len(names) >= 5
    layers = {
        "encoder": model.num_encoder_layers,
        "decoder": model.num_decoder_layers,
        "cross": model.num_decoder_layers,
    }
    for name in names:
        kind, *rest = name.split(".")
        assert name == "positions" or 1 <= int(rest[0]) <= layers[kind], name
        assert rest[1:] in ([], ["residual"]) or (rest[1] == "head" and 1 <= int(rest[2]) <= model.num_heads), name


needs_sklearn = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="pip install scikit-learn")
ANNOTATED = ("annotated_transformer.md", "annotated_attention.md", "course.md")


@pytest.mark.parametrize("name", (*ANNOTATED, pytest.param("annotated_counting_words.md", marks=needs_sklearn)))
def test_examples_print_what_the_page_says(script, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = script("annotate").examples((ROOT / "docs" / "learn" / name).read_text(encoding="utf-8"))
    assert examples
    for example in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example.code, names)
        assert printed.getvalue() == example.printed
    # Each picture that an example writes is one that the page shows.
    assert {file.name for file in tmp_path.iterdir()} <= {file.name for file in (ROOT / "docs" / "figures").iterdir()}


@pytest.mark.slow
def test_the_cells_of_the_tour_run():
    cells = json.loads((ROOT / "docs" / "learn" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            code = (
                "".join(cell["source"]).replace('every": 200', 'every": 20').replace('_updates": 100', '_updates": 10')
            )
            exec(code.replace('_updates": 600', '_updates": 40'), names)
    assert names["other"].config.model.attention == "rectified"


def test_the_version_stands_once_and_the_citation_has_it():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == transformer_jax.__version__


def test_the_lock_names_the_public_index_alone():
    sources = set(re.findall(r'(?:registry|url) = "([a-z]+://[^/"]*)', (ROOT / "uv.lock").read_text(encoding="utf-8")))
    assert sources == {"https://pypi.org", "https://files.pythonhosted.org"}


def test_workflows_are_yaml_and_test_the_pythons_of_make():
    workflows = {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in (ROOT / ".github/workflows").glob("*")}
    supported = re.search(r"^SUPPORTED := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert sorted(workflows["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"]) == sorted(supported.split())
