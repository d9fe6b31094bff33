"""The documents: short where it counts, links that lead somewhere, commands that parse, recipes and settings that exist."""

import re
import shlex
from pathlib import Path

import pytest

from transformer_jax.commands.flags import overrides_of, parse
from transformer_jax.commands.registry import COMMANDS, load_command
from transformer_jax.config import ConfigError
from transformer_jax.config.conversion import read_value
from transformer_jax.config.recipes import find_recipe

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
COMMAND = re.compile(r"^(?:[ $]*|\S* *\| *\d? *)(?:srun )?(transformer-jax .*(?:\\\n.*)*)$", re.MULTILINE)
# Text that stands for something a reader fills in.
PLACEHOLDERS = ("...", "RUN", "KEY=VALUE", "FILE", "COMMAND", "slurm|")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 8192


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


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


CODE = re.compile(
    r"^```(?:sh|bash|text|console)?\n(.*?)^```|((?:^    .*\n?)+)|(?<!`)`([^`\n]+)`", re.MULTILINE | re.DOTALL
)


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


def test_commands_are_found_wherever_they_stand():
    indented, fenced = "    transformer-jax two \\\n        --flag=a\n", "```sh\n$ transformer-jax three\n```\n"
    text = f"a `transformer-jax one` and\n\n{indented}\n{fenced}"
    assert commands_of(text) == ["transformer-jax one", "transformer-jax two --flag=a", "transformer-jax three"]


def test_every_experiment_is_listed():
    listed = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    folders = [file.parent.name for file in sorted((ROOT / "experiments").glob("*/README.md"))]
    assert [name for name in folders if f"(../experiments/{name}/README.md)" not in listed] == []


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_parse(page, line):
    words = shlex.split(re.split(r" [<>|] ?| #", line)[0])[1:]
    if words[0] not in COMMANDS or any(mark in line for mark in PLACEHOLDERS):
        assert words[0] in (*COMMANDS, "COMMAND"), line
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


def test_nothing_is_installed_from_an_index_that_does_not_have_it():
    files = [*PAGES, *sorted((ROOT / "transformer_jax").rglob("*.py"))]
    assert [file.name for file in files if "install transformer_jax" in file.read_text("utf-8").replace("'", "")] == []


def test_wrong_commands_are_seen():
    with pytest.raises(ConfigError):
        test_commands_parse("x", "transformer-jax train --config=nowhere --workdir=runs/x")
    with pytest.raises(ConfigError):
        test_commands_parse("x", "transformer-jax train --config=quickstart --config.model.width=3 --workdir=runs/x")
