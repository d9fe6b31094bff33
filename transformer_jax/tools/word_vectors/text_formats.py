"""Word vectors as text: that of word2vec, with a line ``V D`` first, and that of GloVe, without it."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from transformer_jax.config.errors import DataError
from transformer_jax.data.text_files import check_sentence, raw_lines
from transformer_jax.tools.word_vectors.vectors import WordVectors, first_bad_row


def read_text(path: Path, has_header: bool) -> WordVectors:
    """Reads ``word x1 ... xD`` a line, separated by spaces or tabs; plain, ``.gz`` or ``.xz``.

    A word may have spaces in it, as some of GloVe's do, where none of its parts after the first could be a number.

    Raises DataError, with file and line, at a line of another dimension, what is no finite number, a word that was there
    before, text that is not UTF-8, and where the number of lines is not that of the header.
    """
    lines = enumerate(raw_lines(path), start=1)
    num_words, dimension = _header(path, lines) if has_header else (None, None)
    first_line = 2 if has_header else 1
    values = array("f")
    index: dict[str, int] = {}
    for number, raw in lines:
        fields = raw.split()
        if not fields:
            raise DataError(f"{path}, line {number}: the line is empty; expected a word and its vector")
        dimension = len(fields) - 1 if dimension is None else dimension
        if dimension < 1:
            raise DataError(f"{path}, line {number}: {_shown(raw)} has no numbers; expected a word and its vector")
        word = _append(values, fields, raw, dimension, f"{path}, line {number}")
        earlier = index.setdefault(word, number)
        if earlier != number:
            raise DataError(f"{path}, line {number}: {word!r} was on line {earlier:,} already; a word has one vector")
    if num_words is not None and len(index) != num_words:
        cause = "the file may be cut short" if len(index) < num_words else "correct line 1"
        raise DataError(f"{path}: {len(index):,} words, but line 1 says {num_words:,}; {cause}")
    if dimension is None or not index:
        raise DataError(f"{path}: no vectors; expected a word and its numbers on each line")
    matrix = np.frombuffer(values, np.float32).reshape(-1, dimension)
    if (row := first_bad_row(matrix)) is not None:
        raise DataError(f"{path}, line {first_line + row}: a number is not finite in float32")
    return WordVectors(tuple(index), matrix)


def looks_like_word2vec(path: Path) -> bool:
    """Whether the first line is two whole numbers."""
    fields = next(raw_lines(path), b"").split()
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def write_text(file: BinaryIO, vectors: WordVectors, has_header: bool) -> None:
    """Writes the shortest decimals that float32 reads back as they were.

    Raises DataError, before it writes, for a word that is empty or has a white space, which the format cannot hold.
    """
    require_no_space(vectors, "text")
    if has_header:
        file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
    for word, row in zip(vectors.words, vectors.matrix, strict=True):
        file.write(f"{word} {numbers_text(row)}\n".encode())


def numbers_text(row: np.ndarray, separator: str = " ") -> str:
    """The shortest decimals that float32 reads back as they were."""
    return separator.join(map(str, row))


def require_no_space(vectors: WordVectors, kind: str) -> None:
    """Raises DataError for the first word that is empty or has a white space."""
    for row, word in enumerate(vectors.words):
        if word.encode().split() != [word.encode()]:
            raise DataError(
                f"word {row + 1:,} is {word!r}, and a word with a white space cannot be written as {kind}; write .npz instead"
            )


def _append(values: "array[float]", fields: list[bytes], raw: bytes, dimension: int, where: str) -> str:
    """Adds the numbers of a line behind ``values``; the word."""
    numbers = len(fields) - dimension
    found = len(fields) - 1
    if numbers < 1 or any(map(_looks_like_number, fields[1:numbers])):
        raise DataError(f"{where}: {found} numbers, expected {dimension}")
    try:
        # Python reads 1_000 as a number; no format of vectors does.
        if any(b"_" in field for field in fields[numbers:]):
            raise ValueError
        values.extend(map(float, fields[numbers:]))
    except ValueError:
        wrong = next(field for field in fields[numbers:] if b"_" in field or not _is_number(field))
        raise DataError(f"{where}: {_shown(wrong)} is not a number") from None
    word = fields[0] if numbers == 1 else b" ".join(fields[:numbers])
    return check_sentence(word, where)


def _looks_like_number(field: bytes) -> bool:
    """Whether what stands inside a word with spaces is rather a number, maybe a broken one."""
    return field.lstrip(b"+-.")[:1].isdigit() or _is_number(field)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _header(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[int, int]:
    fields = next(lines, (1, b""))[1].split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        shown = _shown(b" ".join(fields))
        raise DataError(
            f"{path}, line 1: {shown} is not the number of words and the dimension; --format=glove has no such line"
        )
    num_words, dimension = map(int, fields)
    if not (num_words and dimension):
        raise DataError(f"{path}, line 1: {num_words} words of dimension {dimension}; both must be above 0")
    return num_words, dimension


def _shown(raw: bytes) -> str:
    """The start of what was found, as text in quotes."""
    return repr(raw[:40].decode("utf-8", "replace").strip())
