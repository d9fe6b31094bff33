"""Checkpoint folders without their arrays: steps, scores, sizes, damage. Does not import Orbax."""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.config import DataError, ExperimentConfig, from_json
from transformer_jax.errors import StoreError
from transformer_jax.files.file_digests import changed_files
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import in_store

# Orbax writes it into every checkpoint.
MARKER = "_CHECKPOINT_METADATA"
# In a store a checkpoint has the empty object IN_PROGRESS until it is complete, then COMMIT alone.
IN_PROGRESS = "in_progress"
COMMIT = "commit_success.txt"
# In the name of a half-written or half-deleted folder, which the next start of the run removes.
UNFINISHED = ".orbax-checkpoint-tmp-"


class CheckpointError(DataError):
    """No usable checkpoint. The message names the folder and its checkpoints."""


class CheckpointMismatch(CheckpointError):
    """The checkpoint belongs to a model with other arrays."""


class CheckpointUnread(CheckpointError):
    """A checkpoint cannot be read although its files are unchanged.

    A disk, a store or memory failed.
    """


class StoredCheckpoint(NamedTuple):
    """A checkpoint as files. ``score`` is None if not measured, or if not ``is_sound``."""

    step: int
    folder: Path
    score: float | None
    is_sound: bool

    @property
    def can_be_continued(self) -> bool:
        """Whether a run can resume from it: averaged parameters have no optimizer state."""
        return (self.folder / "rest").is_dir()

    @property
    def written(self) -> float:
        """Time of completion in seconds since 1970, from Orbax, ``COMMIT`` or the folder."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return parse_json((self.folder / MARKER).read_text(encoding="utf-8"))["commit_timestamp_nsecs"] / 1e9
        with suppress(OSError, ValueError):
            return float((self.folder / COMMIT).read_text(encoding="utf-8"))
        return 0.0 if in_store(self.folder) else self.folder.stat().st_mtime


def stored_checkpoints(directory: Path) -> list[StoredCheckpoint]:
    """Return the complete checkpoints of a folder, oldest first."""
    if not in_store(directory):
        return [_stored(directory / name) for name in step_names(directory)]
    with directory.listed() as listed:
        return [_stored(listed / name) for name in step_names(listed)]


def step_names(directory: Path) -> list[str]:
    """Return the names of the complete checkpoints in a folder, oldest first."""
    if in_store(directory):
        objects = directory.objects()
        folders = {name.partition("/")[0] for name in objects}
        names = [name for name in folders if f"{name}/{MARKER}" in objects and f"{name}/{IN_PROGRESS}" not in objects]
    else:
        # One that was copied from a store may be unfinished.
        names = [entry.name for entry in directory.glob("[0-9]*") if not (entry / IN_PROGRESS).exists()]
    return sorted(filter(is_step, names), key=int)


def written_settings(directory: Path) -> tuple[int, ExperimentConfig | None]:
    """Return step and settings of the newest checkpoint with readable settings, or (0, None)."""
    for step, progress in written_progress(directory):
        with suppress(ValueError, KeyError, TypeError):
            return step, from_json(progress["config"])
    return 0, None


def written_progress(directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield step and JSON of the checkpoints whose JSON can be read, newest first."""
    for name in reversed(step_names(directory)):
        folder = directory / name
        # Damage is reported when the checkpoint is restored.
        with suppress(OSError):
            content = (folder / "progress" / "metadata").read_bytes()
            with suppress(ValueError, TypeError):
                if in_store(folder) or not changed_files(folder, ["progress"]):
                    yield int(name), dict(parse_json(content))


def is_step(name: str) -> bool:
    """Return whether this is the name of a checkpoint: at most 18 ASCII digits."""
    return re.fullmatch(r"[0-9]{1,18}", name) is not None


def bytes_in(folder: Path) -> int:
    """Return the total size of the files in a folder, in bytes."""
    if in_store(folder):
        return sum(info["size"] for info in folder.objects().values())
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def unused_name(checkpoints: Path, step: int) -> Path:
    """Return a new name for a damaged checkpoint beside the folder of checkpoints."""
    names = (checkpoints.parent / f"damaged-{step}{suffix}" for suffix in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(name for name in names if not name.exists())


def were_set_aside(run: Path) -> list[Path]:
    """Return the damaged checkpoints that were moved into the folder of a run."""
    return sorted(entry for entry in run.glob("damaged-[0-9]*") if entry.is_dir())


def _stored(folder: Path) -> StoredCheckpoint:
    changed: Any = changed_files
    if in_store(folder):
        if not (folder / "metrics" / "metrics").is_file():
            # No request: the folder is listed.
            return StoredCheckpoint(int(folder.name), folder, None, is_sound=True)
        from transformer_jax.files.object_digests import changed_objects as changed
    scores = _scores(folder)
    if scores is None or changed(folder, ["metrics"]):
        return StoredCheckpoint(int(folder.name), folder, None, is_sound=False)
    # The metric that selects checkpoints is the only one that is stored with them.
    score = next(iter(scores.values()), None)
    is_finite = score is not None and math.isfinite(score)
    return StoredCheckpoint(int(folder.name), folder, score if is_finite else None, is_sound=True)


def _scores(folder: Path) -> dict[str, float] | None:
    """Return the scores of a checkpoint by name, None if they cannot be read."""
    try:
        scores = parse_json((folder / "metrics" / "metrics").read_text(encoding="utf-8"))
    except FileNotFoundError:
        # It was not scored, or is being deleted.
        return {}
    except StoreError:
        raise
    except (OSError, ValueError):
        return None
    is_sound = isinstance(scores, dict) and all(type(value) in (int, float) for value in scores.values())
    return scores if is_sound else None
