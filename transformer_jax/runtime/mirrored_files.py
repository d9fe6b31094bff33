"""Local copies of objects of a store, downloaded again only when they have changed there."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from transformer_jax.config.json_text import parse_json
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.object_stores import Store, StoredObject, StoreError, each
from transformer_jax.runtime.retries import reason_of


class MirroredFiles:
    """Copies below ``folder/files``; ``folder/versions.json`` has the version of each."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self.path, self._record = store, folder / "files", folder / "versions.json"
        self._versions = _read(self._record)

    def update(self, objects: Mapping[str, StoredObject]) -> None:
        """Downloads those that are missing or changed; raises StoreError."""
        old = [name for name, found in objects.items() if not self._is_current(name, found)]

        def download(name: str) -> None:
            try:
                self._store.download(name, self.path / name, objects[name].size)
            except OSError as error:
                raise StoreError(f"{self._store.address}/{name}: {self.path / name}: {reason_of(error)}") from error
            self._versions[name] = objects[name].version

        try:
            each(download, old)
        finally:
            self._save()

    def create_placeholders(self, objects: Mapping[str, StoredObject]) -> None:
        """Makes an empty file of the right size, which takes no room, for each that is neither here nor downloaded."""
        for name, found in objects.items():
            file = self.path / name
            if self._is_current(name, found) or (file.is_file() and file.stat().st_size == found.size):
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.truncate(file, found.size)

    def forget(self, name: str) -> None:
        """Deletes a copy."""
        (self.path / name).unlink(missing_ok=True)
        self._versions.pop(name, None)

    def versions(self) -> dict[str, str]:
        """The versions of what was downloaded, by name."""
        return dict(self._versions)

    def _is_current(self, name: str, found: StoredObject) -> bool:
        return self._versions.get(name) == found.version and (self.path / name).is_file()

    def _save(self) -> None:
        write_whole(self._record, json.dumps(self._versions))


def _read(record: Path) -> dict[str, str]:
    try:
        found = parse_json(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}
