"""A run in the store of ``faulty_store``, and what training leaves there, without training."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from transformer_jax.runs.training_mirror import training_mirror
from transformer_jax.runtime.file_digests import write_digests
from transformer_jax.runtime.object_stores import MIRRORS

RUN = "faulty://bucket/run"
# No upload but that at the end; a lease that is not renewed meanwhile.
AT_END, LEASE_SECONDS = 3600.0, 0.3


def training(pause: float = AT_END) -> AbstractContextManager[Path]:
    """A start of the run, with a lease that is short."""
    return training_mirror(RUN, pause, LEASE_SECONDS)


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on this is a machine with an empty disk."""
    monkeypatch.setenv(MIRRORS, str(folder))


def save(folder: Path, step: int, text: str = "") -> None:
    """A checkpoint as the manager leaves it, and a log that goes up to it."""
    checkpoint = folder / "checkpoints" / f"{step}.tmp"
    for item in ("params", "rest", "metrics"):
        (checkpoint / item).mkdir(parents=True)
        (checkpoint / item / item).write_text(json.dumps({"item": item, "text": text or str(step)}))
    (checkpoint / "metrics" / "metrics").write_text(json.dumps({"bleu": step}))
    write_digests(checkpoint)
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": step}) + "\n")
    (folder / "config.json").write_text("{}")
    checkpoint.rename(checkpoint.with_name(str(step)))


def steps(folder: Path) -> list[int]:
    """The checkpoints in a run directory."""
    return sorted(int(entry.name) for entry in (folder / "checkpoints").glob("*"))
