"""The tokenizers of a run, which are in its folder and in every checkpoint."""

import base64
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import jax

from transformer_jax.checkpoints.reader import CheckpointReader
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import TOKENIZER_FILES, TokenizerPair, load_tokenizers, tokenizer_files
from transformer_jax.errors import complain
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.stored_checkpoints import CheckpointError
from transformer_jax.runtime.distributed import from_first


def tokenizers_of_run(run: RunDirectory) -> TokenizerPair:
    """Return the tokenizers of a run, or of its newest checkpoint if they are missing or damaged.

    Raises DataError if no checkpoint has them.
    """
    return of_first(lambda: stored_tokenizers(run))


def of_first(find: Callable[[], TokenizerPair]) -> TokenizerPair:
    """Call ``find`` on process 0 only and return its result on all processes."""
    if jax.process_count() == 1:
        return find()
    saved = from_first(lambda: tokenizers_to_json(find()), "tokenizers")
    with TemporaryDirectory() as folder:
        return _unpacked(saved, Path(folder))


def stored_tokenizers(run: RunDirectory) -> TokenizerPair:
    """Return ``tokenizers_of_run`` for this process alone."""
    try:
        return load_tokenizers(run.tokenizer)
    except DataError as error:
        saved = _saved_tokenizers(run)
        if not saved:
            raise
        complain(f"transformer-jax: {error}; the tokenizers of the newest checkpoint are used")
        # The run may be of somebody else.
        with suppress(OSError):
            return _unpacked(saved, run.tokenizer)
        with TemporaryDirectory() as folder:
            return _unpacked(saved, Path(folder))


def tokenizers_to_json(tokenizers: TokenizerPair) -> dict[str, str]:
    """Return the tokenizer files in base 64, by name, for a checkpoint."""
    return {name: base64.b64encode(data).decode() for name, data in tokenizer_files(tokenizers).items()}


def _unpacked(saved: dict[str, str], folder: Path) -> TokenizerPair:
    """Write tokenizer files into a folder and load them, or raise DataError at another name."""
    if others := set(saved) - set(TOKENIZER_FILES):
        problem = f"a checkpoint names a tokenizer file {min(others)!r}; known are {', '.join(TOKENIZER_FILES)}"
        raise DataError(f"{folder}: {problem}")
    if folder.is_symlink():
        raise DataError(f"{folder} is a link; tokenizers of a checkpoint are written into no other folder")
    for name, content in saved.items():
        write_whole(folder / name, base64.b64decode(content))
    return load_tokenizers(folder)


def _saved_tokenizers(run: RunDirectory) -> dict[str, str]:
    """Return tokenizer files of the newest readable checkpoint, in base 64, or none."""
    if run.has_checkpoints():
        checkpoints = CheckpointReader(run.checkpoints)
        for step in reversed(checkpoints.steps()):
            with suppress(CheckpointError):
                return checkpoints.progress(step)["tokenizer"]
    return {}
