"""Lines of a stream, in chunks that wait for nothing."""

import itertools
import select
from collections.abc import Iterator
from typing import BinaryIO

from transformer_jax.config import DataError

BYTES_AT_ONCE = 1 << 16
FIRST_LINES = 256


def in_chunks(lines: Iterator[str | None], size: int) -> Iterator[list[str]]:
    """Lists of at most ``size`` lines, the first of fewer; a list ends early at None, and before a line that cannot be read."""
    chunk: list[str] = []
    most = min(FIRST_LINES, size)
    try:
        for line in lines:
            chunk += [] if line is None else [line]
            if chunk and (line is None or len(chunk) == most):
                yield chunk
                chunk, most = [], size
    except DataError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def lines_as_they_come(source: BinaryIO, name: str) -> Iterator[str | None]:
    """The lines of a stream as ``read_lines`` gives those of a file, and None whenever the next would have to be waited for.

    So a person at a terminal, or a program that writes into a pipe now and then, is answered.
    """
    from transformer_jax.data.text_files import sentence_of_line

    rest, numbers = b"", itertools.count(1)
    while data := source.read1(BYTES_AT_ONCE):  # type: ignore[attr-defined]  # of every buffered stream
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield sentence_of_line(line, name, next(numbers))
        if not _is_readable(source):
            yield None
    if rest:
        yield sentence_of_line(rest, name, next(numbers))


def _is_readable(source: BinaryIO) -> bool:
    """Whether reading would return at once; always true for a file, and where it cannot be determined."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        return True
