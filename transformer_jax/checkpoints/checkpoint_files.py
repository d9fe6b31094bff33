"""The files of checkpoints on a disk: which of them changed since they were written."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from transformer_jax.files.file_digests import Part, changed_files, has_digests
from transformer_jax.run_directory.stored_checkpoints import CheckpointError


class CheckpointFiles:
    """The checkpoints in the folder ``path``, to read; ``CheckpointObjects`` has those in an object store."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def listed(self, step: int | None = None) -> AbstractContextManager[Any]:
        """Context of the path to a complete checkpoint, or to all, which do not change meanwhile.

        In an object store one listing answers questions about their files.
        """
        return nullcontext(self.path if step is None else self.path / str(step))

    def require_undamaged(self, checkpoint: Any, names: list[str], part: Part) -> None:
        """Raise CheckpointError where files of these items, or folders in them, changed since they were written."""
        if changed := self.changed(checkpoint, names, part):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            listed = f"{', '.join(changed[:3])}{more}"
            raise CheckpointError(f"checkpoint {checkpoint.name} is damaged: {listed} changed since written")

    def changed(self, checkpoint: Any, names: list[str], part: Part) -> list[str]:
        """Return the files for ``require_undamaged``."""
        return changed_files(checkpoint, names, part)

    def has_digests(self, checkpoint: Any, names: list[str]) -> bool:
        """Whether ``changed`` compares checksums of the files of these items."""
        return has_digests(checkpoint)
