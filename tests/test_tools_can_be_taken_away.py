"""Every tool is a folder that can be deleted, and another distribution can bring one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from process_environment import process_environment
from run_settings import tiny_settings

from transformer_jax.index import own_indexes

ROOT = Path(__file__).resolve().parents[1]
TOOLS = [index.tool for index in own_indexes() if index.tool]
COPIED = ("transformer_jax", "configs", "tests", "docs", "pyproject.toml")
# Tests of settings and imports that are of no tool.
CORE_TESTS = ("test_conversion.py", "test_recipes.py", "test_experiment.py", "../test_architecture.py")


def without(folder: Path, *tools: str, copied: tuple[str, ...] = ("transformer_jax", "configs")) -> Path:
    """A copy of the package without some tools."""
    folder.mkdir(exist_ok=True)
    for name in copied:
        ignored = shutil.ignore_patterns("__pycache__", *(tools if name == "transformer_jax" else ()))
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
from transformer_jax.index import commands

assert Path(transformer_jax.__file__).parents[1] == Path.cwd()
assert main(["--help"]) == 0
print(*commands())
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_its_commands_are_gone(tool, tmp_path):
    (own,) = [index for index in own_indexes() if index.tool == tool]
    listed = set(printed(without(tmp_path, tool), "-c", HELP).splitlines()[-1].split())
    others = {name for index in own_indexes() for name in index.commands if index.tool != tool}
    assert listed == others and not listed & own.commands.keys()


def test_a_command_that_needs_an_absent_tool_says_so(tmp_path):
    result = run(without(tmp_path, "preflight"), *COMMAND, "conform", "rope")
    assert (result.returncode, "needs the tools preflight, which are not installed" in result.stderr) == (2, True)


def train_and_use(folder: Path, also: Path | None = None, **model: str) -> str:
    """Train a tiny run, score it and translate with it; return the output of the training."""
    settings = tiny_settings(folder / "cache")
    settings["model"] |= model
    (folder / "tiny.py").write_text(f"get_config = lambda: {settings!r}\n")
    training = printed(folder, *COMMAND, "train", "--config=tiny.py", "--workdir=run", also=also)
    assert "finished at update 12" in training
    assert "BLEU" in printed(folder, *COMMAND, "evaluate", "run", "--split=validation", also=also)
    assert len(printed(folder, *COMMAND, "translate", "run", text="a b c\nd\n", also=also).splitlines()) == 2
    return training


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
    training = train_and_use(folder, installed, norm="halved")
    assert "loss --workdir=run" in training and "curves" not in training
    assert printed(folder, *COMMAND, "loss", "run", also=installed).endswith("after 12 updates\n")

    refused = run(folder, *COMMAND, "train", "--config=text", "--workdir=other")
    assert (refused.returncode, "no tool that chooses sizes" in refused.stderr) == (2, True)
    (installed / "loss_of_run" / "index.toml").write_text("[door.run_hooks]\n")
    refused = run(folder, *COMMAND, "--help", also=installed)
    problem = "index.toml: unknown key door; expected needs, parts, commands, doors\n"
    assert (refused.returncode, refused.stderr.endswith(problem)) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_a_run_is_trained_and_the_tests_of_the_core_pass(tool, tmp_path):
    folder = without(tmp_path, tool, copied=COPIED)
    train_and_use(folder)
    tests = [str(folder / "tests" / "config" / name) for name in CORE_TESTS]
    printed(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
