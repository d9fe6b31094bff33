"""Whole files of parallel text checked in blocks: their encoding, and as many lines on both sides."""

import codecs
from collections import deque
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.data.text_files import TextCorpus, raw_blocks, read_lines


def require_sound(corpus: TextCorpus, split: str) -> None:
    """Raises DataError, with file and line, unless every line of a split can be read and has its translation.

    A file is read in blocks, and line by line only where a block shows that something is wrong, or the pairs are in one file.
    """
    next(corpus.pairs(split), None)
    files = corpus.files(split)
    counts = {_lines_of_text(path) for path in files}
    if len(files) == 1 or len(counts) > 1 or None in counts:
        deque(corpus.pairs(split), maxlen=0)


def require_text(path: Path) -> int:
    """The number of lines of a file; raises DataError, with file and line, unless ``read_lines`` can read all of them."""
    lines = _lines_of_text(path)
    if lines is None or next(read_lines(path), None) is None:
        return sum(1 for _ in read_lines(path))
    return lines


def _lines_of_text(path: Path) -> int | None:
    """The number of lines of a file; None where it is no UTF-8, has a NUL byte, or is damaged."""
    decode, lines, last = codecs.getincrementaldecoder("utf-8")().decode, 0, b"\n"
    try:
        for block in raw_blocks(path):
            decode(block)
            if b"\0" in block:
                return None
            lines, last = lines + block.count(b"\n"), block[-1:]
        decode(b"", True)
    except (UnicodeDecodeError, DataError):
        return None
    return lines + (last != b"\n")
