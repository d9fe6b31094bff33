"""Damage to files of a run, of its tokenized data and of what it reads, by kind of file and kind of damage."""

import random
from collections.abc import Callable
from pathlib import Path

from judges import NOT_STRUCK, Verdict, judge
from subjects import UPDATES
from undisturbed import bound, resumed, two_thirds_of, undisturbed_run

FILES = {
    "parameters": "run/checkpoints/*/params/**/*",
    "optimizer": "run/checkpoints/*/rest/**/*",
    "progress": "run/checkpoints/*/progress/*",
    "scores": "run/checkpoints/*/metrics/*",
    "digests": "run/checkpoints/*/digests.json",
    "checkpoint metadata": "run/checkpoints/*/_CHECKPOINT_METADATA",
    "settings": "run/config.json",
    "log": "run/metrics.jsonl",
    "goodput": "run/goodput.json",
    "starts": "run/run.json",
    "data report": "run/data.json",
    "events": "run/events.*",
    "tokenizer": "run/tokenizer/*",
    "token store": "cache/*_stores/*/*",
}


def flip(file: Path, rng: random.Random) -> None:
    """One bit."""
    content = bytearray(file.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def truncate(file: Path, rng: random.Random) -> None:
    """The file ends early."""
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def remove(file: Path, rng: random.Random) -> None:
    """The file is gone."""
    del rng
    file.unlink()


def overwrite(file: Path, rng: random.Random) -> None:
    """A block of zeros, as a disk returns that lost a sector."""
    content = bytearray(file.read_bytes())
    start = rng.randrange(max(len(content), 1))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    file.write_bytes(content)


def clutter(file: Path, rng: random.Random) -> None:
    """What a killed process left beside it."""
    file.with_name(f"{file.name}.{rng.getrandbits(128):032x}.partial").write_bytes(b"half")


def move_aside(file: Path, rng: random.Random) -> None:
    """A folder where the file was."""
    del rng
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bit": flip,
    "truncated": truncate,
    "removed": remove,
    "zeros": overwrite,
    "leftovers": clutter,
    "folder": move_aside,
}


def damage_one(folder: Path, kind: str, damage: str, rng: random.Random) -> str:
    """Damages a random file of a kind; its name, empty where there is none, or none that the damage changes."""
    found = sorted(file for file in folder.glob(FILES[kind]) if file.is_file())
    if not found:
        return ""
    chosen = rng.choice(found)
    before = chosen.read_bytes()
    DAMAGES[damage](chosen, rng)
    is_changed = damage == "leftovers" or not chosen.is_file() or chosen.read_bytes() != before
    return chosen.relative_to(folder).as_posix() if is_changed else ""


def damaged(kind: str, damage: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """One file of an unfinished run is damaged, and the run resumed."""
    case = two_thirds_of(subject, root, root / "case")
    name = damage_one(case, kind, damage, rng)
    if not name:
        return Verdict(NOT_STRUCK, f"no {kind} to damage")
    reference = undisturbed_run(subject, root)
    status, output = resumed(subject, case, bound(reference.parent))
    verdict = judge(status, output, case / "run", reference, UPDATES, is_log_damaged=kind == "log")
    return verdict._replace(detail=f"{name}: {verdict.detail}")
