"""Writing files so that nobody ever reads half of one."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Replaces a file at once: a reader, or whoever comes after a kill, finds the old one or the new one.

    Makes the folder if need be. Text is written as UTF-8.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    partial.replace(path)
