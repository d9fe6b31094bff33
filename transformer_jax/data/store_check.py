"""A check that a store of tokenized data is as it was written: a flipped bit would train on another text."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.runtime.file_digests import changed_files

CHECKED_AT_ONCE = 1 << 28
SAMPLED_SEGMENTS = 16


class StoreCheck:
    """Checks a small store whole; of a large one some segments, and all of it in the background until ``finish``.

    Raises ValueError when it is damaged. A store of an earlier version, without digests, passes.
    """

    def __init__(self, directory: Path) -> None:
        size = sum(file.stat().st_size for file in directory.iterdir())
        is_large = size > CHECKED_AT_ONCE
        if changed := changed_files(directory, sample=SAMPLED_SEGMENTS if is_large else None):
            raise ValueError(f"{directory}: {', '.join(changed)} changed since written")
        self._directory = directory
        self._changed: Future[list[str]] | None = None
        if is_large:
            with_one_thread = ThreadPoolExecutor(1)
            self._changed = with_one_thread.submit(changed_files, directory)
            with_one_thread.shutdown(wait=False)

    def finish(self) -> None:
        """Waits for the check of the whole store; call before anything that was trained on it is saved.

        Raises DataError when the store is damaged, and removes it: it is then built again.
        """
        changed = self._changed.result() if self._changed else []
        if changed:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise DataError(
                f"{self._directory}: {', '.join(changed)} changed since the data were tokenized; removed, and nothing that "
                "was trained on it is saved: the same command tokenizes again"
            )
