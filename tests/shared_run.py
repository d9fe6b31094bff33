"""A run that the tests of commands look at."""

import fcntl
import itertools
import math
import os
import shutil
from pathlib import Path

import jax
import pytest
from run_settings import tiny_settings
from run_steps import on_devices

from transformer_jax.commands.train import train_and_report
from transformer_jax.config import from_dict
from transformer_jax.data.synthetic.symbols import SymbolCorpus
from transformer_jax.tasks import trained_run
from transformer_jax.training.sharding import make_mesh

LEARNING = {"num_updates": 30, "evaluate_every": 10, "checkpoint_every": 10, "log_every": 10, "validation_sentences": 0}
SENTENCES = {"train": 200, "validation": 40, "test": 24}


def write_text(folder: Path) -> Path:
    """Letters as files, with few lines to translate; every target begins alike, so that a model
    soon scores something."""
    folder.mkdir()
    corpus = SymbolCorpus(SENTENCES["train"], seed=0, reverse=True)
    for split, count in SENTENCES.items():
        pairs = list(itertools.islice(corpus.pairs(split), count))
        (folder / f"{split}.en").write_text("".join(f"{pair.source}\n" for pair in pairs))
        (folder / f"{split}.de").write_text("".join(f"a b c d e {pair.target[-3:]}\n" for pair in pairs))
    return folder


@pytest.fixture(scope="module", autouse=True)
def few_devices():
    """Runs are opened on one device, or on as many as a mesh states."""
    with pytest.MonkeyPatch.context() as patch:
        number = lambda mesh: abs(math.prod(mesh.sizes.values()))  # noqa: E731
        patch.setattr(trained_run, "make_mesh", lambda mesh: make_mesh(mesh, jax.devices()[: number(mesh)]))
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """Trained by the first worker that needs it; each has a copy of its own, since commands write
    into it."""
    shared = tmp_path_factory.getbasetemp()
    shared = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "trained run"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "run" / "outcome.json").is_file():
            train_shared(shared)
    return Path(shutil.copytree(shared / "run", tmp_path_factory.mktemp("copy") / "run"))


def train_shared(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    settings = tiny_settings(folder / "cache", **LEARNING)
    settings["data"] |= {"source": "text", "directory": str(write_text(folder / "text"))}
    with on_devices(1):
        assert train_and_report(from_dict(settings), str(folder / "run")) == 0
