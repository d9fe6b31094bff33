"""Word vectors as gensim's KeyedVectors, their files, and words looked up in them."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transformer_jax.data.text_files import BYTE_ORDER_MARK, raw_lines, visible
from transformer_jax.errors import ConfigError, DataError, nearest
from transformer_jax.files.atomic_files import appearing_file

if TYPE_CHECKING:
    from gensim.models import KeyedVectors as KeyedVectors
else:
    # gensim is optional, and imported when vectors are loaded.
    KeyedVectors = Any

FORMATS = ("word2vec", "word2vec_binary", "glove")
SUFFIXES = {".bin": "word2vec_binary", ".txt": "word2vec", ".vec": "word2vec"}
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"
"""First character of a subword piece that begins a word."""
SUGGESTED_FROM = 50_000
"""The number of first words among which a similar one is looked up for an unknown word."""


def _keyed_vectors_class() -> type[KeyedVectors]:
    """Return gensim's class, or raise ConfigError if gensim is not installed."""
    try:
        from gensim.models import KeyedVectors
    except ImportError:
        raise ConfigError("gensim, which holds word vectors, is not installed", remedy="pip install gensim") from None
    return KeyedVectors


def keyed_vectors(words: Sequence[str], matrix: np.ndarray, name: str = "word vectors") -> KeyedVectors:
    """Return the vectors of words, finite rows of ``matrix`` (float32 [V, D])."""
    vectors = _keyed_vectors_class()(matrix.shape[1])
    vectors.add_vectors(list(words), matrix)
    return _checked(vectors, name)


def read_vectors(path: str | Path, format_name: str = "", limit: int = 0) -> KeyedVectors:
    """Read the first ``limit`` vectors (0: all) of a file, plain or compressed (.gz, .xz).

    By default the suffix decides the format: .bin, else text, word2vec's or GloVe's by its first
    line. A word of a text file may have spaces, since the last numbers of a line are its vector. Of
    a repeated word the first vector counts. Raises ConfigError for an unknown format, DataError if
    the file is missing or damaged.
    """
    path = Path(path).expanduser()
    if format_name not in ("", *FORMATS):
        raise ConfigError("--format", f"{format_name!r} is not one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected word vectors ({', '.join(FORMATS)})")
    if not format_name:
        suffix = Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix
        format_name = SUFFIXES.get(suffix, "word2vec")
        if format_name == "word2vec" and _sizes(next(raw_lines(path), b"")) is None:
            format_name = "glove"
    load = _keyed_vectors_class().load_word2vec_format
    if format_name != "word2vec_binary":
        return _read_text(path, format_name == "word2vec", limit)
    try:
        vectors = load(str(path), binary=True, limit=limit or None)
    # A damaged file raises errors of gensim, NumPy or a decompressor.
    except Exception as error:
        raise DataError(f"{path}: not a whole file of the format {format_name} ({error})") from None
    # gensim counts a repeated word, and keeps no vector of it.
    words = [word for word in vectors.index_to_key if word is not None]
    if len(words) < len(vectors):
        return keyed_vectors(words, vectors.vectors[: len(words)], str(path))
    return _checked(vectors, str(path))


def write_vectors(path: str | Path, vectors: KeyedVectors, format_name: str = "") -> Path:
    """Write a file atomically, and return its path. Words must have no white space."""
    path = Path(path).expanduser()
    format_name = require_format(path, format_name)
    for row, word in enumerate(vectors.index_to_key, start=1):
        if word.encode().split() != [word.encode()]:
            problem = f"word {row:,} is '{visible(word)}', and white space separates the words of these files"
            raise DataError(f"{problem}; leave it out")
    with appearing_file(path) as file:
        is_binary = format_name == "word2vec_binary"
        vectors.save_word2vec_format(file.name, binary=is_binary, write_header=format_name != "glove")
    return path


def require_format(path: str | Path, format_name: str) -> str:
    """Return the format to write: ``format_name``, or by suffix, .bin, .txt or .vec (word2vec)."""
    path = Path(path).expanduser()
    name = format_name or SUFFIXES.get(path.suffix, "")
    if name not in FORMATS:
        remedy = f"give one of {', '.join(FORMATS)}, or --output a file that ends in {', '.join(SUFFIXES)}"
        raise ConfigError("--output_format", f"{format_name!r} is not a format", remedy)
    if path.is_dir():
        raise ConfigError("--output", f"{path} is a folder", "give a file")
    return name


def find(vectors: KeyedVectors, word: str) -> str | None:
    """Return the word, or the piece that begins it, as written, else in lower case, else None.

    In a table of pieces, "in" is the word, the piece "▁in", rather than the end of "begin".
    """
    forms = (WORD_START + word, word, WORD_START + word.lower(), word.lower())
    return next((form for form in forms if form in vectors.key_to_index), None)


def require_word(vectors: KeyedVectors, word: str) -> str:
    """Return the form that ``find`` finds, or raise DataError, which suggests a similar word."""
    form = find(vectors, word)
    if form is None:
        first = vectors.index_to_key[:SUGGESTED_FROM]
        near = nearest(word, (other for other in first if abs(len(other) - len(word)) <= 2))
        hint = f"; did you mean {near!r}?" if near else ""
        raise DataError(f"{word!r} is not one of the {len(vectors):,} words{hint}")
    return form


def _checked(vectors: KeyedVectors, name: str) -> KeyedVectors:
    """Make the cosines of zero vectors 0 instead of NaN, and require finite values."""
    vectors.fill_norms()
    is_finite = np.isfinite(vectors.norms)
    if not is_finite.all():
        word = vectors.index_to_key[int(np.argmin(is_finite))]
        raise DataError(f"{name}: the vector of {word!r} has a value that is not finite")
    vectors.norms[vectors.norms == 0] = 1.0
    return vectors


def _read_text(path: Path, has_header: bool, limit: int) -> KeyedVectors:
    """Read ``limit`` lines (0: all) of a word and numbers, with single spaces between.

    gensim reads no word with spaces, and takes a lone number for every value of a vector.
    """
    lines = enumerate(raw_lines(path), start=1)
    announced, dimension, count = None, 0, 0
    if has_header:
        _, header = next(lines, (1, b""))
        sizes = _sizes(header)
        if sizes is None or 0 in sizes:
            raise DataError(f"{path}, line 1: {_shown(header)} is not the number of words and the dimension")
        announced, dimension = sizes
    rows: dict[str, np.ndarray] = {}
    for number, line in islice(lines, limit or None):
        if line.startswith(BYTE_ORDER_MARK):
            raise DataError(f"{path}, line {number}: begins with a byte order mark; save the file without one")
        fields = line.split()
        dimension = dimension or _numbers_at_the_end(fields)
        further = len(fields) - dimension - 1
        # Without a header, a number between words is of a longer vector, or of two joined lines.
        is_wrong = further < 0 or (not has_header and any(map(_is_number, fields[1 : 1 + further])))
        if dimension < 1 or is_wrong or line.rstrip() != b" ".join(fields):
            expected = f"a word and {max(dimension, 1)} numbers, with single spaces between them"
            raise DataError(f"{path}, line {number}: expected {expected}, not {_shown(line)}")
        try:
            word = b" ".join(fields[: further + 1]).decode("utf-8")
            rows.setdefault(word, np.array(fields[further + 1 :], np.float32))
        except UnicodeDecodeError:
            problem = f"invalid UTF-8 in {_shown(line)}; convert the text to UTF-8"
            raise DataError(f"{path}, line {number}: {problem}") from None
        except ValueError:
            problem = f"{_shown(line)} does not end in {dimension} numbers"
            raise DataError(f"{path}, line {number}: {problem}") from None
        count += 1
    if not rows:
        raise DataError(f"{path}: no vectors; expected lines of a word and its numbers")
    if count != limit and announced not in (None, count):
        cause = "the file may be cut short" if count < announced else "correct line 1"
        raise DataError(f"{path}: {count:,} words, but line 1 says {announced:,}; {cause}")
    return keyed_vectors(list(rows), np.stack(list(rows.values())), str(path))


def _numbers_at_the_end(fields: Sequence[bytes]) -> int:
    """Return how many fields at the end are numbers. If none is, return all but the first."""
    numbers = len(list(takewhile(_is_number, reversed(fields[1:]))))
    return numbers or len(fields) - 1


def _is_number(field: bytes) -> bool:
    with suppress(ValueError):
        float(field)
        return True
    return False


def _sizes(line: bytes) -> tuple[int, int] | None:
    """Return the number of words and the dimension if the line is two integers."""
    fields = line.split()
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 and all(field.isdigit() for field in fields) else None


def _shown(raw: bytes) -> str:
    return f"'{visible(raw[:40].decode('utf-8', 'replace').strip(' \t\r\n'))}'"
