"""Where a run that trains writes its checkpoints: what disks and object stores have in common."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from transformer_jax.checkpoints.save_failure import SaveFailed
from transformer_jax.runtime.process_group import is_of_another


class CheckpointFolder:
    """A folder of checkpoints to write; subclasses add what their storage has.

    ``temporary_path``: how Orbax writes a checkpoint.
    """

    temporary_path: type[Any]

    def __init__(self, path: Any) -> None:
        self.path = path

    def arrays(self) -> Any:
        """Return a handler of arrays for Orbax."""
        raise NotImplementedError

    def opening(self) -> AbstractContextManager[None]:
        """Context of ``prepare`` and of opening Orbax, which raises StoreError where a store refuses."""
        return nullcontext()

    def prepare(self) -> list[str]:
        """Make the folder ready for Orbax; returns a sentence about each checkpoint that was moved out of it."""
        raise NotImplementedError

    def require_lock(self) -> None:
        """Raise SaveFailed, in all processes, where another run took the folder over."""

    def release(self) -> None:
        """Releases the lock of the run before the process ends at once."""

    def require_present(self) -> None:
        """Raise SaveFailed where the folder was removed."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise SaveFailed for every exception of the block, except errors that report the end of another process."""
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
        """Return the error that ends the run: one line on why the folder cannot be written, and the remedy."""
        raise NotImplementedError

    def set_aside(self, step: int) -> Path:
        """Move a checkpoint into the folder of the run, to an unused name."""
        raise NotImplementedError

    def remove_unfinished(self) -> None:
        """Remove what failed saves left."""
