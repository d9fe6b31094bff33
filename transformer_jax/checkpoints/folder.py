"""The folder of the checkpoints of a run, to read and to write."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.files.file_digests import Part, changed_files, has_digests
from transformer_jax.run_directory.stored_checkpoints import CheckpointError
from transformer_jax.runtime.process_group import is_of_another


class CheckpointFiles:
    """The checkpoints in the folder ``path`` on a disk, to read."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def listed(self, step: int | None = None) -> AbstractContextManager[Any]:
        """Return a context of the path to one checkpoint, or to all, which do not change."""
        return nullcontext(self.path if step is None else self.path / str(step))

    def require_undamaged(self, checkpoint: Any, names: list[str], part: Part) -> None:
        """Raise CheckpointError when files or folders ``names`` changed since they were written."""
        if changed := self.changed(checkpoint, names, part):
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            listed = f"{', '.join(changed[:3])}{more}"
            raise CheckpointError(f"checkpoint {checkpoint.name} is damaged: {listed} changed since written")

    def changed(self, checkpoint: Any, names: list[str], part: Part) -> list[str]:
        """Return the files that changed, for ``require_undamaged``."""
        return changed_files(checkpoint, names, part)

    def has_digests(self, checkpoint: Any, names: list[str]) -> bool:
        """Return whether ``changed`` compares checksums of the files of these items."""
        return has_digests(checkpoint)


class CheckpointFolder:
    """A folder of checkpoints to write; ``temporary_path``: how Orbax writes a checkpoint."""

    temporary_path: type[Any]

    def __init__(self, path: Any) -> None:
        self.path = path

    def arrays(self) -> Any:
        """Return a handler of arrays for Orbax."""
        raise NotImplementedError

    def opening(self) -> AbstractContextManager[None]:
        """Return the context of ``prepare`` and of opening Orbax. Raises StoreError."""
        return nullcontext()

    def prepare(self) -> list[str]:
        """Make the folder ready for Orbax. Returns a sentence about each checkpoint moved away."""
        raise NotImplementedError

    def require_lock(self) -> None:
        """Raise SaveFailed, in all processes, when another run took the folder over."""

    def release(self) -> None:
        """Release the lock of the run before the process ends at once."""

    def require_present(self) -> None:
        """Raise SaveFailed when the folder was removed."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise SaveFailed for every error of the block but the end of another process."""
        try:
            self.require_present()
            yield
        except SaveFailed:
            raise
        # Orbax, tensorstore and the system have different errors.
        except Exception as error:
            if is_of_another(error):
                raise
            # Python warns about the abandoned writes when they are collected.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            raise self.failure(error) from None

    def failure(self, error: BaseException) -> SaveFailed:
        """Return the error that ends the run: the problem and the remedy in one line."""
        raise NotImplementedError

    def set_aside(self, step: int) -> Path:
        """Move a checkpoint into the folder of the run, to an unused name."""
        raise NotImplementedError

    def remove_unfinished(self) -> None:
        """Remove the folders of failed saves."""
