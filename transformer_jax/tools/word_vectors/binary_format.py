"""Word vectors as the binary file of word2vec: ``V D``, then for each word its bytes, a space and D float32."""

import gzip
import zlib
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from transformer_jax.config.errors import DataError
from transformer_jax.data.text_files import check_sentence
from transformer_jax.tools.word_vectors.text_formats import require_no_space
from transformer_jax.tools.word_vectors.vectors import WordVectors, first_bad_row

LONGEST_HEADER = 64
LONGEST_WORD = 4_096
LARGEST_DIMENSION = 1 << 20
AT_ONCE = 1 << 22


def read_binary(path: Path) -> WordVectors:
    """Reads a file, plain or ``.gz``; a line end behind each vector, as the C program writes, may be there or not.

    Raises DataError, with the number of the word, where the file ends too early or continues after the last vector, at a word
    that was there before, and at a value that is not finite.
    """
    opened: IO[bytes]
    try:
        opened = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # type: ignore[assignment]  # noqa: SIM115
        with opened as file:
            return _read(path, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file ({error}); copy it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def write_binary(file: BinaryIO, vectors: WordVectors) -> None:
    """Writes them as the C program does; raises DataError for a word that is empty or has a white space."""
    require_no_space(vectors, "word2vec binary")
    file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
    for word, row in zip(vectors.words, vectors.matrix.astype("<f4", copy=False), strict=True):
        file.write(word.encode() + b" " + row.tobytes() + b"\n")


def _read(path: Path, file: IO[bytes]) -> WordVectors:
    fields = file.readline(LONGEST_HEADER).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or not all(map(int, fields)):
        raise DataError(
            f"{path}: does not begin with the number of words and the dimension; not a binary file of word2vec"
        )
    num_words, dimension = map(int, fields)
    if dimension > LARGEST_DIMENSION:
        raise DataError(
            f"{path}: its first line says {dimension:,} dimensions, at most {LARGEST_DIMENSION:,} are read; it is damaged"
        )
    index: dict[str, int] = {}
    values = bytearray()
    left, place, size = b"", 0, 4 * dimension
    for number in range(1, num_words + 1):
        if len(left) - place < LONGEST_WORD + size:
            left, place = left[place:] + file.read(AT_ONCE + size), 0
        end = left.find(b" ", place, place + LONGEST_WORD)
        if end < 0 or end + 1 + size > len(left):
            raise DataError(f"{path}: ends or is damaged in word {number:,} of {num_words:,}; copy it again")
        word = check_sentence(left[place:end].lstrip(b"\n"), f"{path}, word {number:,}")
        earlier = index.setdefault(word, number)
        if earlier != number:
            raise DataError(f"{path}, word {number:,}: {word!r} was word {earlier:,} already; a word has one vector")
        values += memoryview(left)[end + 1 : end + 1 + size]
        place = end + 1 + size
    if left[place:].strip() or file.read(AT_ONCE).strip():
        raise DataError(f"{path}: continues after the {num_words:,} words that its first line announces")
    matrix = np.frombuffer(values, "<f4").reshape(num_words, dimension).astype(np.float32, copy=False)
    if (row := first_bad_row(matrix)) is not None:
        raise DataError(f"{path}, word {row + 1:,}: a value is not finite; the file is damaged, or is not word2vec's")
    return WordVectors(tuple(index), matrix)
