"""How a run lies in an object store: the files of its directory, each checkpoint whole once its digests are there.

A store has no renaming, so ``digests.json`` is the commit marker of a checkpoint: written last, deleted first.
"""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from transformer_jax.runtime.described_files import Described, describe
from transformer_jax.runtime.file_digests import DIGESTS
from transformer_jax.runtime.object_stores import is_safe

LEASE, WRITER = "train.lease", "writer.json"
"""The lease of the process that trains, and the mirror that wrote last."""

_CHECKPOINTS = re.compile(r"([^/]+/)?checkpoints")
_IN_CHECKPOINT = re.compile(r"((?:[^/]+/)?checkpoints/[0-9]{1,18})/(.+)")
# Of the disk of one machine; a folder that was set aside holds what is of no use to others.
_LOCAL = re.compile(r"(.*/)?(damaged-[^/]*/.*|[^/]*\.(partial|lock|lease))")
# ``evaluate --watch`` keeps a log of its own.
_TRAINED = re.compile(
    r"((?!evaluate-)[^/]+/)?((config|run|data|outcome|goodput|trackers)\.json|metrics\.jsonl|curves\.png|hang\.txt|events\.[^/]*|"
    r"(tokenizer|profile)/.*)"
)
_UNREAD = re.compile(r"([^/]+/)?(profile/.*|events\.[^/]*)")


def checkpoint_of(name: str) -> str | None:
    """The checkpoint, ``checkpoints/900``, that an object belongs to; also one level below, of a folder of runs."""
    found = _IN_CHECKPOINT.fullmatch(name)
    return found[1] if found else None


def whole_checkpoints(names: Iterable[str]) -> set[str]:
    """The checkpoints that have their commit marker."""
    ends = {name.removesuffix(f"/{DIGESTS}") for name in names if name.endswith(f"/{DIGESTS}")}
    return {each for each in ends if checkpoint_of(f"{each}/{DIGESTS}") == each}


def is_restored_later(name: str) -> bool:
    """Whether an object holds arrays, which are read from one checkpoint or none."""
    found = _IN_CHECKPOINT.fullmatch(name)
    return found is not None and found[2].startswith(("params/", "rest/"))


def is_of_a_run(name: str) -> bool:
    """Whether an object is one that a run directory has, apart from what keeps the store in order."""
    return name not in (LEASE, WRITER) and _LOCAL.fullmatch(name) is None


def run_folders(names: Iterable[str]) -> set[str]:
    """The folders of runs, and of exported models, among objects; the empty name stands for a run itself."""
    return {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] == "config.json"}


def is_read(name: str, runs: Collection[str]) -> bool:
    """Whether some command reads it: traces and events are for programs of others, and so is what lies beside ``runs``."""
    folder, slash, _ = name.partition("/")
    is_inside = "" in runs or not slash or folder in runs
    return is_inside and is_of_a_run(name) and _UNREAD.fullmatch(name) is None


def is_result(name: str) -> bool:
    """Whether commands that read a run may write this: not what training wrote, which is checked against other files."""
    return is_of_a_run(name) and checkpoint_of(name) is None and _TRAINED.fullmatch(name) is None


def own_checkpoints(names: Iterable[str]) -> dict[str, set[str]]:
    """The objects of each checkpoint of a run itself, none of a run below it."""
    found: dict[str, set[str]] = {}
    for name in names:
        if name.startswith("checkpoints/") and (checkpoint := checkpoint_of(name)):
            found.setdefault(checkpoint, set()).add(name)
    return found


def described_files(folder: Path) -> dict[str, Described]:
    """The files of a run, or of a folder of runs, that are not of a checkpoint; what appears meanwhile may be missing."""
    found = {}
    for place, below, files in os.walk(folder):
        inside = Path(place).relative_to(folder)
        below[:] = [name for name in below if not _CHECKPOINTS.fullmatch((inside / name).as_posix())]
        for file in files:
            name = (inside / file).as_posix()
            if is_of_a_run(name) and is_safe(name) and (described := describe(folder / name)):
                found[name] = described
    return found
