"""Every tool is a folder that can be deleted, and another distribution can bring one."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from process_environment import process_environment
from run_settings import tiny_settings
from shared_run import LEARNING, write_text

from transformer_jax.config import ConfigError
from transformer_jax.registry import index
from transformer_jax.registry.index import commands, own_indexes

ROOT = Path(__file__).resolve().parents[1]
TOOLS = [each.tool for each in own_indexes() if each.tool]
COPIED = ("transformer_jax", "configs", "tests", "docs", "pyproject.toml")


def without(folder: Path, *tools: str, copied: tuple[str, ...] = ("transformer_jax", "configs")) -> Path:
    """A copy of the package without some tools and their recipes."""
    folder.mkdir(exist_ok=True)
    for name in copied:
        of_tools = [*tools, *(f"{tool}.py" for tool in tools)]
        ignored = shutil.ignore_patterns("__pycache__", *(of_tools if name in ("transformer_jax", "configs") else ()))
        source = ROOT / name
        shutil.copytree(source, folder / name, ignore=ignored) if source.is_dir() else shutil.copy(source, folder)
    for tool in tools:
        assert not (folder / "transformer_jax" / "tools" / tool).exists()
    return folder


def run(folder: Path, *arguments: str, text: str = "", also: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python with the package in ``folder``, and with the distributions installed in ``also``."""
    path = f"{folder}:{also}" if also else str(folder)
    environment = process_environment() | {"PYTHONPATH": path}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)


def printed(folder: Path, *arguments: str, text: str = "", also: Path | None = None) -> str:
    """The output of a command that must succeed."""
    result = run(folder, *arguments, text=text, also=also)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


COMMAND = ("-m", "transformer_jax")
HELP = """
import transformer_jax
from pathlib import Path
from transformer_jax.__main__ import main
from transformer_jax.registry.index import commands

assert Path(transformer_jax.__file__).parents[1] == Path.cwd()
assert main(["--help"]) == 0
print(*commands())
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_its_commands_are_gone(tool, tmp_path):
    (own,) = [each for each in own_indexes() if each.tool == tool]
    *listed, names = printed(without(tmp_path, tool), "-c", HELP).splitlines()
    assert {*names.split()} == {name for each in own_indexes() for name in each.commands if each is not own}
    hidden = [name for name, command in commands().items() if tool in command.needs or name in own.commands]
    assert [name for name in hidden if any(line.startswith(f"  {name} ") for line in listed)] == []


def test_a_command_that_needs_an_absent_tool_says_so(tmp_path):
    result = run(without(tmp_path, "preflight"), *COMMAND, "conform", "rope")
    assert (result.returncode, "conform: needs the tool preflight, which is not installed" in result.stderr) == (
        2,
        True,
    )


# Several commands in one process, which imports JAX once; a line of "=" after each.
COMMANDS = """
import sys
from transformer_jax.__main__ import main

for command in sys.argv[1:]:
    assert main(command.split()) == 0
    print("=" * 99, flush=True)
"""
USES = "train --config=tiny.py --workdir=run", "evaluate run --split=validation"


def train_and_use(folder: Path, *more: str, also: Path | None = None, metrics: str = "bleu") -> list[str]:
    """Train a tiny run, score it and translate with it.

    Returns the output of the training and of the commands ``more`` in its process.
    """
    # As in the run that other tests share, whose compiled programs are there.
    settings = tiny_settings(folder / "cache", **LEARNING) | {"evaluation": {"metrics": metrics}}
    settings["data"] |= {"source": "text", "directory": str(write_text(folder / "text"))}
    (folder / "tiny.py").write_text(f"get_config = lambda: {settings!r}\n")
    training, evaluation, *others = printed(folder, "-c", COMMANDS, *USES, *more, also=also).split("=" * 99 + "\n")
    assert "finished at update 30" in training
    assert all(metric in evaluation.lower() for metric in metrics.split(","))
    # A new process knows nothing of the training.
    assert len(printed(folder, *COMMAND, "translate", "run", text="a b c\nd\n", also=also).splitlines()) == 2
    return [training, *others[:-1]]


def test_without_all_tools_a_run_is_trained_and_used_and_another_distribution_brings_one(tmp_path):
    installed, source = tmp_path / "installed", tmp_path / "source"
    shutil.copytree(ROOT / "tests" / "tiny_tool", source)
    pip = (
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    )
    subprocess.run([sys.executable, "-m", *pip, f"--target={installed}", str(source)], check=True, cwd=tmp_path)
    folder = without(tmp_path / "core", *TOOLS)

    text = printed(folder, *COMMAND, "--help", also=installed)
    assert "Look inside:\n  loss        print the last loss of a run\n" in text and "explore" not in text
    training, loss = train_and_use(folder, "loss run", also=installed, metrics="bleu,words")
    assert "loss --workdir=run" in training and "curves" not in training
    assert loss.endswith("the last of 3\n")

    refused = run(folder, *COMMAND, "train", "--config=text", "--workdir=other")
    assert (refused.returncode, "--config=text: no tool that sizes runs" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[door.run_hooks]", "unknown key door; expected needs, parts, commands, doors"),
        ("[", "cannot be read: "),
        ("commands = 3", "commands: expected tables [commands.NAME]"),
        (
            "[commands.a]\nfunction = 'a:b'\nhelp = 'c'\ngroup = 'd'",
            "commands.a: expected function, help and group, one of start",
        ),
        ("[doors.run_hook]\na = 'a:b'", "doors.run_hook: is not a door; doors are settings, run_hooks"),
        ("[doors.run_hooks]\na = 'b'", "doors.run_hooks.a: expected 'module:function' (got 'b')"),
        ("needs = 'sizing'", "needs: expected a list of names of tools"),
        ("[parts.nrom]\na = 'b'", "parts.nrom: is not one of attention, "),
        ("[parts.norm]\na = 1", "parts.norm: expected module = 'NAME NAME ...'"),
    ],
)
def test_a_wrong_index_is_refused_with_its_file(text, problem, tmp_path):
    (tmp_path / "index.toml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / 'index.toml'}: {problem}")):
        index._read(tmp_path / "index.toml", "package")


def test_a_wrong_index_of_the_package_itself_is_one_message(tmp_path):
    folder = without(tmp_path)
    (folder / "transformer_jax" / "tools" / "study" / "index.toml").write_text("[parts.nrom]\nworker = 'a'\n")
    for command in (["config", "--config=quickstart", "--config.model.norm=nothing"], ["doctor", "--help"]):
        result = run(folder, *COMMAND, *command)
        assert "Traceback" not in result.stderr, result.stderr
    (folder / "transformer_jax" / "tools" / "study" / "index.toml").write_text("needs = 3\n")
    for command in ([], ["config", "--config=quickstart"]):
        result = run(folder, *COMMAND, *command)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_a_run_is_trained_and_the_tests_of_the_core_pass(tool, tmp_path):
    folder = without(tmp_path, tool, copied=COPIED)
    train_and_use(folder)
    # Of the tests of imports, those without examples that name tools.
    tests = "tests/config", "tests/test_architecture.py", "-k", "not lower_floors and not of_an_index"
    printed(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
