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
    for name in copied:
        ignored = shutil.ignore_patterns("__pycache__", *(tools if name == "transformer_jax" else ()))
        source = ROOT / name
        shutil.copytree(source, folder / name, ignore=ignored) if source.is_dir() else shutil.copy(source, folder)
    for tool in tools:
        assert not (folder / "transformer_jax" / "tools" / tool).exists()
    return folder


def python(folder: Path, *arguments: str, text: str = "") -> str:
    """The output of Python with the package in ``folder``; fails unless it succeeds."""
    environment = process_environment() | {"PYTHONPATH": str(folder)}
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


HELP = """
import transformer_jax
from pathlib import Path
from transformer_jax.__main__ import main
from transformer_jax.index import commands

assert Path(transformer_jax.__file__).parents[1] == Path.cwd()
assert main(["--help"]) == main(["config", "--config=quickstart", "--config.model.norm=rmsnorm"]) == 0
print(*commands())
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_its_commands_are_gone_and_settings_work(tool, tmp_path):
    (own,) = [index for index in own_indexes() if index.tool == tool]
    listed = set(python(without(tmp_path, tool), "-c", HELP).splitlines()[-1].split())
    others = {name for index in own_indexes() for name in index.commands if index.tool != tool}
    assert listed == others and not listed & own.commands.keys()


def train_and_use(folder: Path) -> None:
    settings = f"from run_settings import tiny_settings\nget_config = lambda: {tiny_settings(folder / 'cache')!r}\n"
    (folder / "tiny.py").write_text(settings.replace("from run_settings import tiny_settings\n", ""))
    command = ("-m", "transformer_jax")
    trained = python(folder, *command, "train", "--config=tiny.py", "--workdir=run")
    assert "finished at update 12" in trained
    assert "validation" in python(folder, *command, "evaluate", "run", "--split=validation")
    assert len(python(folder, *command, "translate", "run", text="a b c\nd\n").splitlines()) == 2


def test_without_all_tools_a_run_is_trained_evaluated_and_used(tmp_path):
    folder = without(tmp_path, *TOOLS)
    assert not (folder / "run" / "curves.png").exists()
    train_and_use(folder)
    refused = [sys.executable, "-m", "transformer_jax", "train", "--config=text", "--workdir=other"]
    environment = process_environment() | {"PYTHONPATH": str(folder)}
    result = subprocess.run(refused, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "no tool that chooses sizes" in result.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_a_run_is_trained_and_the_tests_of_the_core_pass(tool, tmp_path):
    folder = without(tmp_path, tool, copied=COPIED)
    train_and_use(folder)
    tests = [str(folder / "tests" / "config" / name) for name in CORE_TESTS]
    python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def test_a_command_that_needs_an_absent_tool_says_so(tmp_path):
    folder = without(tmp_path, "preflight")
    environment = process_environment() | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "transformer_jax", "conform", "rope"]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "needs the tools preflight, which are not installed" in result.stderr) == (2, True)


def test_another_distribution_brings_a_command_a_part_and_hooks(tmp_path):
    installed, source = tmp_path / "installed", tmp_path / "source"
    shutil.copytree(ROOT / "tests" / "tiny_tool", source)
    pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run([sys.executable, *pip, f"--target={installed}", str(source)], check=True, cwd=tmp_path)
    folder = tmp_path / "work"
    folder.mkdir()
    settings = tiny_settings(folder / "cache", num_updates=2, evaluate_every=0)
    settings["model"]["norm"] = "halved"
    (folder / "tiny.py").write_text(f"get_config = lambda: {settings!r}\n")
    environment = process_environment()
    environment["PYTHONPATH"] += f":{installed}"

    def printed(*arguments: str) -> str:
        command = [sys.executable, "-m", "transformer_jax", *arguments]
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    look = printed("--help").partition("Look inside:")[2].partition("Compare")[0]
    assert "  loss        print the last loss of a run\n" in look
    assert "loss --workdir=run" in printed("train", "--config=tiny.py", "--workdir=run")
    assert printed("loss", "run").endswith("after 2 updates\n")
    (installed / "loss_of_run" / "index.toml").write_text("[door.run_hooks]\n")
    command = [sys.executable, "-m", "transformer_jax", "--help"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    problem = "index.toml: unknown key door; expected needs, parts, commands, doors\n"
    assert (result.returncode, result.stderr.endswith(problem)) == (2, True)
