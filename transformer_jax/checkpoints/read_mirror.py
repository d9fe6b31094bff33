"""A local copy of a run in an object store, to read: arrays come when a checkpoint is restored.

Until then files of the right size, which take no room, hold their places, so that what lists, selects and checks checkpoints
finds the folder that it knows.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from transformer_jax.checkpoints.stored_run import (
    checkpoint_of,
    described_files,
    is_read,
    is_restored_later,
    is_result,
    run_folders,
    whole_checkpoints,
)
from transformer_jax.config import DataError
from transformer_jax.config.addresses import is_address, is_unasked, without_mark
from transformer_jax.config.secrets import masked
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.file_digests import DIGESTS
from transformer_jax.runtime.mirrored_files import MirroredFiles
from transformer_jax.runtime.object_stores import Store, StoredObject, StoreError, mirror_folder, name_mirror

_OPEN: dict[Path, "ReadMirror"] = {}


class ReadMirror:
    """A copy of the run, or of the folder of runs, at ``address``; raises DataError where there is none."""

    def __init__(self, address: str) -> None:
        self._store = Store(address)
        self._files = MirroredFiles(self._store, mirror_folder(self._store.address, "read"), is_result)
        self.address, self.path = self._store.address, self._files.path
        self._objects: dict[str, StoredObject] = {}
        self.refresh()

    def refresh(self) -> None:
        """Brings the copy up to date; a checkpoint that is being written or deleted there is none."""
        with self._files.locked():
            listed = self._store.listing()
            runs = {folder for folder in run_folders(listed) if "/" not in folder}
            if not runs:
                found = ", ".join(sorted(listed)[:8]) or "nothing"
                raise DataError(f"{self.address}: not a run directory: no config.json in it (found {found})")
            whole = whole_checkpoints(listed)
            objects = {
                name: found
                for name, found in listed.items()
                if is_read(name, runs) and (checkpoint_of(name) is None or checkpoint_of(name) in whole)
            }
            later = {name: found for name, found in objects.items() if is_restored_later(name)}
            self._remove_old(objects)
            self._files.update({name: found for name, found in objects.items() if name not in later})
            self._files.create_placeholders(later)
        self._objects = objects

    def fetch(self, folder: Path, items: Iterable[str]) -> None:
        """Downloads ``items`` of the checkpoint in ``folder``."""
        checkpoint = folder.relative_to(self.path).as_posix()
        wanted = tuple(f"{checkpoint}/{item}/" for item in items)
        with self._files.locked():
            self._files.update({name: each for name, each in self._objects.items() if f"{name}/".startswith(wanted)})

    def send_back(self) -> None:
        """Uploads what commands wrote beside the checkpoints: scores, translations, pictures.

        Raises StoreError; then the next command that reads this run uploads it.
        """
        with self._files.locked():
            for name in described_files(self.path):
                if self._files.is_changed(name):
                    self._files.send(name)

    def _remove_old(self, objects: dict[str, StoredObject]) -> None:
        """Removes copies of what is gone, and of each checkpoint that was written anew."""
        versions = self._files.versions()
        self._files.forget(name for name in versions if name not in objects)
        markers = {checkpoint: f"{checkpoint}/{DIGESTS}" for checkpoint in whole_checkpoints([*versions, *objects])}
        for checkpoint, marker in markers.items():
            if marker not in objects or (marker in versions and versions[marker] != objects[marker].version):
                self._files.forget(name for name in versions if checkpoint_of(name) == checkpoint)
                shutil.rmtree(self.path / checkpoint, ignore_errors=True)


def open_read_mirror(address: str) -> ReadMirror:
    """The copy of a run to read; one a process, whose arrays ``fetch_arrays`` downloads."""
    found = next((mirror for mirror in _OPEN.values() if mirror.address == address.rstrip("/")), None)
    if found is None:
        found = ReadMirror(address)
        _OPEN[found.path] = found
        name_mirror(found.path, found.address)
    return found


def open_run(place: str | Path) -> RunDirectory:
    """The run in a folder, or at an address a copy of it to read; raises DataError where only another run names the address."""
    if is_unasked(str(place)):
        address = masked(without_mark(str(place)))
        raise DataError(
            f"init.run: the run names {address}, and only what you name yourself is opened: --init_from={address}"
        )
    return RunDirectory(open_read_mirror(str(place)).path if is_address(place) else place)


def fetch_arrays(folder: Path, items: Iterable[str]) -> None:
    """Before items of a checkpoint are read: downloads them where they lie in a store."""
    for path, mirror in _OPEN.items():
        if folder.is_relative_to(path):
            mirror.fetch(folder, items)


def refresh_mirrors() -> None:
    """For a command that waits for more: sends what it wrote, and looks for new checkpoints; a store may be away meanwhile."""
    for mirror in _OPEN.values():
        try:
            mirror.send_back()
            mirror.refresh()
        except StoreError:
            # The next look, or the end of the command, tells.
            continue
