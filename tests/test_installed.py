"""The wheel, installed where there is no checkout: its recipes train, and what they train
translates and is scored."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from hashlib import sha256
from pathlib import Path

import pytest

import transformer_jax

ROOT = Path(__file__).resolve().parents[1]
TINY = (
    "--config.data.generated_pairs=200",
    "--config.optimizer.warmup_updates=1",
    "--config.training.num_updates=4",
    "--config.training.evaluate_every=4",
)


def run(command: list[str], folder: Path, text: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.mark.slow
def test_the_wheel_trains_translates_and_evaluates_far_from_the_checkout(tmp_path):
    source = tmp_path / "source"
    for name in ("transformer_jax", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("*.py", "figures"))
    # As in a source distribution, which has no repository.
    (source / "transformer_jax" / "commit.txt").write_text("5f3c")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run([*build, "--wheel-dir", str(tmp_path / "wheels"), str(source)], tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # What the package requires is that of the environment of the tests; the package itself is not
    # in this folder.
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    binaries = tmp_path / "env" / "bin"
    run([str(binaries / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], tmp_path)

    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    command = str(binaries / "transformer-jax")
    assert str(packages) in run([command, "recipes", "quickstart"], elsewhere)
    run([command, "train", "--config=quickstart", "--workdir=a run", *TINY], elsewhere)
    (start,) = json.loads((elsewhere / "a run" / "run.json").read_text())
    digest = f"sha256={sha256(wheel.read_bytes()).hexdigest()}"
    assert (start["version"], start["git_commit"], start["wheel"]) == (transformer_jax.__version__, "5f3c", digest)
    # Its pages, which help names, are in the wheel too.
    pages = re.findall(r"\S*/\w+\.md\b", run([command, "train", "--help"], elsewhere).replace("(", " "))
    assert len(pages) >= 2 and all(Path(page).is_file() for page in pages), pages
    assert run([command, "config", "--config=configs/multi30k.py:tiny_hour"], elsewhere)
    assert len(run([command, "translate", "--workdir=a run"], elsewhere, "a\nb\n").splitlines()) == 2
    assert "BLEU" in run([command, "evaluate", "--workdir=a run", "--config.decoding.beam_width=1"], elsewhere)
    (report,) = (elsewhere / "a run").glob("evaluation-*.json")
    assert json.loads(report.read_text())["package"]["wheel"] == digest
    job = [command, "launch", "slurm", "--gpus_per_node=1", "--cpus=4", "--", "train", "--config=quickstart"]
    assert "#SBATCH --job-name=far\n" in run([*job, "--workdir=far"], elsewhere)
