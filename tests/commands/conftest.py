"""A run that the tests of commands look at."""

import itertools
from pathlib import Path

import pytest
from run_settings import tiny_settings

from transformer_jax.config import from_dict
from transformer_jax.data.synthetic.symbols import SymbolCorpus
from transformer_jax.runs.train import train

LEARNING = {"num_updates": 30, "evaluate_every": 10, "checkpoint_every": 10, "log_every": 10, "validation_sentences": 0}
SENTENCES = {"train": 200, "validation": 40, "test": 24}


def write_text(folder: Path) -> Path:
    """Letters as files, with few lines to translate; every target begins alike, so that a model soon scores something."""
    corpus = SymbolCorpus(SENTENCES["train"], seed=0, reverse=True)
    for split, count in SENTENCES.items():
        pairs = list(itertools.islice(corpus.pairs(split), count))
        (folder / f"{split}.en").write_text("".join(f"{pair.source}\n" for pair in pairs))
        (folder / f"{split}.de").write_text("".join(f"a b c d e {pair.target[-3:]}\n" for pair in pairs))
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = tiny_settings(tmp_path_factory.mktemp("cache"), **LEARNING)
    settings["data"] |= {"source": "text", "directory": str(write_text(tmp_path_factory.mktemp("text")))}
    # Eight devices here; the processes below have one, and look at the run all the same.
    settings["mesh"] = {"data": 2, "fsdp": 2, "tensor": 2}
    assert train(from_dict(settings), str(folder)) == 0
    return folder
