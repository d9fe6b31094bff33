"""Writing files so that nobody ever reads half of one."""

import os
from pathlib import Path

from transformer_jax.config import ConfigError


def write_whole(path: Path, content: str | bytes) -> None:
    """Replaces a file at once: a reader, or whoever comes after a kill, finds the old one or the new one.

    Makes the folder if need be. Text is written as UTF-8. The content is on disk before it has the name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def require_writable(folder: str | Path, flag: str) -> Path:
    """The folder, made if it is not there; raises ConfigError that names ``flag`` when nothing can be written into it."""
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "is a file" if path.is_file() else f"cannot be made: {error.strerror}"
        raise ConfigError(f"{flag}: {path} {reason}; give a folder that can be written") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{flag}: {path} cannot be written; give a folder that can")
    return path
