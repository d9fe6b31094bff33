"""Files of word vectors: word2vec text and binary, GloVe text, NumPy."""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.data.text_files import BYTE_ORDER_MARK, check_sentence, opened_bytes, raw_lines
from transformer_jax.runtime.atomic_files import appearing_file
from transformer_jax.tools.word_vectors.vectors import WordVectors

LONGEST_HEADER = 64
LONGEST_WORD = 4_096
LARGEST_DIMENSION = 1 << 20
AT_ONCE = 1 << 22
LARGEST_EXCESS = 1 << 30
"""Bytes by which the words of an .npz may exceed its matrix."""
SUFFIXES = {".npz": "numpy", ".bin": "word2vec_binary", ".txt": "word2vec", ".vec": "word2vec"}


def read_vectors(path: str | Path, format_name: str = "") -> WordVectors:
    """Reads a file; by default the suffix decides the format: .npz, .bin, else text, word2vec or GloVe by its first line.

    A file other than .npz may be compressed (.gz, .xz). Raises ConfigError for an unknown format, DataError if the file is
    missing or damaged.
    """
    path = Path(path).expanduser()
    if format_name and format_name not in FORMATS:
        raise ConfigError(f"--format: {format_name!r} is not one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected word vectors ({', '.join(FORMATS)})")
    if not format_name:
        suffix = Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix
        format_name = SUFFIXES.get(suffix, "word2vec")
        if format_name == "word2vec" and _sizes(next(_lines(path), b"")) is None:
            format_name = "glove"
    return FORMATS[format_name].read(path)


def write_vectors(path: str | Path, vectors: WordVectors, format_name: str = "") -> Path:
    """Writes a file atomically; returns its path.

    Raises ConfigError as ``require_format`` does, DataError for a word that the format cannot represent.
    """
    path = Path(path).expanduser()
    chosen = require_format(path, format_name)
    with appearing_file(path) as file:
        FORMATS[chosen].write(file, vectors)
    return path


def require_format(path: str | Path, format_name: str) -> str:
    """The format to write: ``format_name``, or by suffix: .npz, .bin, .txt or .vec (word2vec).

    Raises ConfigError for any other name, and if ``path`` is a folder.
    """
    path = Path(path).expanduser()
    chosen = format_name or SUFFIXES.get(path.suffix, "")
    if chosen not in FORMATS:
        endings = f"or --output a file that ends in {', '.join(SUFFIXES)}"
        raise ConfigError(
            f"--output_format: {format_name!r} is not a format; give one of {', '.join(FORMATS)}, {endings}"
        )
    if path.is_dir():
        raise ConfigError(f"--output: {path} is a folder; give a file")
    return chosen


def read_numpy(path: Path) -> WordVectors:
    """Reads ``words`` (text) and ``matrix`` (floats ``[V, D]``) of an .npz; raises DataError if it has no such arrays."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            words, matrix = arrays["words"], arrays["matrix"]
    # A damaged file raises errors of zipfile, zlib or NumPy, and its header may claim any size.
    except Exception as error:
        raise DataError(f"{path}: not an .npz of the arrays 'words' and 'matrix' ({error})") from None
    if words.ndim != 1 or words.dtype.kind != "U" or matrix.dtype.kind != "f":
        raise DataError(f"{path}: words are {words.dtype} and the matrix is {matrix.dtype}; expected text and floats")
    return _checked(path, words.tolist(), matrix.astype(np.float32, copy=False))


def write_numpy(file: BinaryIO, vectors: WordVectors) -> None:
    if cut := next((word for word in vectors.words if word.endswith("\0")), ""):
        raise DataError(f"{cut!r}: NumPy cuts words that end with a NUL character; choose another format")
    longest = max(vectors.words, key=len)
    size = 4 * len(vectors) * len(longest)
    if size > LARGEST_EXCESS + vectors.matrix.nbytes:
        raise DataError(
            f"{longest[:40]!r}...: a word of {len(longest):,} characters; .npz stores every word at this length, "
            f"{size:,} bytes; leave it out, or choose another format"
        )
    np.savez(file, words=np.array(vectors.words, np.str_), matrix=vectors.matrix)


def read_text(path: Path, has_header: bool) -> WordVectors:
    """Reads lines ``word x1 ... xD`` separated by spaces or tabs, plain or compressed, after a line ``V D`` if ``has_header``.

    A word may contain spaces, as in GloVe's files, if no part after the first is a number. Raises DataError for a line of
    another form (named), a number that is not finite, a repeated word, invalid UTF-8, and a number of lines other than V.
    """
    lines = enumerate(_lines(path), start=1)
    num_words = dimension = None
    if has_header:
        _, header = next(lines, (1, b""))
        num_words, dimension = _header(header, f"{path}, line 1")
    values = array("f")
    words = []
    for number, raw in lines:
        fields = raw.split()
        dimension = len(fields) - 1 if dimension is None else dimension
        begin = len(fields) - dimension
        try:
            if dimension < 1 or begin < 1 or any(map(_is_number, fields[1:begin])):
                raise ValueError
            values.extend(map(float, fields[begin:]))
        except ValueError:
            expected = f"a word and {max(dimension, 1)} numbers"
            raise DataError(f"{path}, line {number}: expected {expected}, found {_shown(raw)}") from None
        words.append(check_sentence(b" ".join(fields[:begin]), f"{path}, line {number}"))
    if num_words is not None and len(words) != num_words:
        cause = "the file may be cut short" if len(words) < num_words else "correct line 1"
        raise DataError(f"{path}: {len(words):,} words, but line 1 says {num_words:,}; {cause}")
    if dimension is None or not words:
        raise DataError(f"{path}: no vectors; expected a word and its numbers on each line")
    return _checked(path, words, np.frombuffer(values, np.float32).reshape(-1, dimension))


def write_text(file: BinaryIO, vectors: WordVectors, has_header: bool) -> None:
    """Writes the shortest decimals that give the same float32; raises DataError for a word with white space."""
    _require_no_space(vectors, "text")
    if has_header:
        file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
    for word, row in zip(vectors.words, vectors.matrix, strict=True):
        file.write(f"{word} {' '.join(map(str, row))}\n".encode())


def read_binary(path: Path) -> WordVectors:
    """Reads word2vec's binary file, plain or compressed: ``V D``, then for each word its bytes, a space and D float32.

    The line end after each vector, which the C program writes, is optional. Raises DataError (naming the word) if the file is
    too short or too long, for a repeated word, and for a value that is not finite.
    """
    with opened_bytes(path) as file:
        num_words, dimension = _header(file.readline(LONGEST_HEADER), f"{path}, line 1")
        words = []
        values = bytearray()
        left, start, size = b"", 0, 4 * dimension
        for number in range(1, num_words + 1):
            if len(left) - start < LONGEST_WORD + size:
                left, start = left[start:] + file.read(AT_ONCE + size), 0
            end = left.find(b" ", start, start + LONGEST_WORD)
            if end < 0 or end + 1 + size > len(left):
                raise DataError(f"{path}: ends or is damaged in word {number:,} of {num_words:,}; copy it again")
            words.append(check_sentence(left[start:end].lstrip(b"\n"), f"{path}, word {number:,}"))
            values += memoryview(left)[end + 1 : end + 1 + size]
            start = end + 1 + size
        if left[start:].strip() or file.read(AT_ONCE).strip():
            raise DataError(f"{path}: continues after the {num_words:,} words that its first line announces")
    matrix = np.frombuffer(values, "<f4").reshape(num_words, dimension).astype(np.float32, copy=False)
    return _checked(path, words, matrix)


def write_binary(file: BinaryIO, vectors: WordVectors) -> None:
    """Writes word2vec's binary file as the C program does; raises DataError for a word with white space."""
    _require_no_space(vectors, "word2vec binary")
    file.write(f"{len(vectors)} {vectors.dimension}\n".encode())
    for word, row in zip(vectors.words, vectors.matrix.astype("<f4", copy=False), strict=True):
        file.write(word.encode() + b" " + row.tobytes() + b"\n")


class Format(NamedTuple):
    read: Callable[[Path], WordVectors]
    write: Callable[[BinaryIO, WordVectors], None]


FORMATS = {
    "word2vec": Format(lambda path: read_text(path, True), lambda file, vectors: write_text(file, vectors, True)),
    "word2vec_binary": Format(read_binary, write_binary),
    "glove": Format(lambda path: read_text(path, False), lambda file, vectors: write_text(file, vectors, False)),
    "numpy": Format(read_numpy, write_numpy),
}


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without a byte order mark."""
    for index, raw in enumerate(raw_lines(path)):
        yield raw if index else raw.removeprefix(BYTE_ORDER_MARK)


def _require_no_space(vectors: WordVectors, kind: str) -> None:
    """Raises DataError for the first word that is empty or has white space."""
    for row, word in enumerate(vectors.words):
        if word.encode().split() != [word.encode()]:
            problem = f"is {word!r}; a word with white space cannot be written as {kind}"
            raise DataError(f"word {row + 1:,} {problem}; write .npz instead")


def _checked(path: Path, words: list[str], matrix: np.ndarray) -> WordVectors:
    """The table; adds the file to the message of a DataError."""
    try:
        return WordVectors(tuple(words), matrix)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _header(line: bytes, where: str) -> tuple[int, int]:
    """The number of words and the dimension; raises DataError, which begins with ``where``, for another line."""
    sizes = _sizes(line)
    if sizes is None or 0 in sizes or sizes[1] > LARGEST_DIMENSION:
        problem = (
            f"is not the number of words and the dimension, both above 0 and up to {LARGEST_DIMENSION:,} dimensions"
        )
        raise DataError(f"{where}: {_shown(line)} {problem}")
    return sizes


def _sizes(line: bytes) -> tuple[int, int] | None:
    """The number of words and the dimension; None unless the line is two integers."""
    fields = line.split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 and all(field.isdigit() for field in fields) else None


def _shown(raw: bytes) -> str:
    return repr(raw[:40].decode("utf-8", "replace").strip())
