"""Files of word vectors, by the name of their format or by that of the file."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from transformer_jax.config.errors import ConfigError, DataError
from transformer_jax.runtime.atomic_files import appearing_file, write_whole
from transformer_jax.tools.word_vectors.binary_format import read_binary, write_binary
from transformer_jax.tools.word_vectors.text_formats import looks_like_word2vec, numbers_text, read_text, write_text
from transformer_jax.tools.word_vectors.vectors import WordVectors


class Format(NamedTuple):
    """How files of a format are read and written."""

    read: Callable[[Path], WordVectors]
    write: Callable[[BinaryIO, WordVectors], None]


def read_numpy(path: Path) -> WordVectors:
    """Reads ``words`` (text) and ``matrix`` (numbers ``[V, D]``) of an .npz; raises DataError where it has no such arrays."""
    try:
        with np.load(path) as arrays:
            words, matrix = arrays["words"], arrays["matrix"]
    # A damaged file can raise anything: zipfile, zlib and NumPy have different errors, and a header may claim any size.
    except Exception as error:
        raise DataError(f"{path}: not an .npz of the arrays 'words' and 'matrix' ({error})") from None
    if words.ndim != 1 or words.dtype.kind != "U" or matrix.dtype.kind != "f":
        raise DataError(f"{path}: words are {words.dtype} and the matrix is {matrix.dtype}; expected text and floats")
    return _named(path, words.tolist(), matrix.astype(np.float32, copy=False))


def write_numpy(file: BinaryIO, vectors: WordVectors) -> None:
    """Writes ``words`` and ``matrix``."""
    np.savez(file, words=np.array(vectors.words, np.str_), matrix=vectors.matrix)


FORMATS = {
    "word2vec": Format(lambda path: read_text(path, True), lambda file, vectors: write_text(file, vectors, True)),
    "word2vec_binary": Format(read_binary, write_binary),
    "glove": Format(lambda path: read_text(path, False), lambda file, vectors: write_text(file, vectors, False)),
    "numpy": Format(read_numpy, write_numpy),
}
PROJECTOR = "projector"
"""Written only, as a folder."""
SUFFIXES = {".npz": "numpy", ".bin": "word2vec_binary", ".txt": "word2vec", ".vec": "word2vec"}


def read_vectors(path: str | Path, format_name: str = "") -> WordVectors:
    """Reads a file; the format is that of its name: .npz, .bin, else text, whose first line tells word2vec from GloVe.

    A ``.gz`` may follow, but not on .npz. Raises ConfigError for an unknown format, DataError for a file that is not there and
    where it is broken.
    """
    path = Path(path).expanduser()
    if format_name and format_name not in FORMATS:
        raise ConfigError(f"--format: {format_name!r} is not one of {', '.join(FORMATS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected word vectors ({', '.join(FORMATS)})")
    if not format_name:
        format_name = SUFFIXES.get(_suffix(path), "glove")
        if format_name in ("word2vec", "glove"):
            format_name = "word2vec" if looks_like_word2vec(path) else "glove"
    return FORMATS[format_name].read(path)


def write_vectors(path: str | Path, vectors: WordVectors, format_name: str = "") -> list[Path]:
    """Writes a file, which appears when it is whole, or the folder of the projector; the files written.

    Raises ConfigError as ``require_format`` does, DataError for a word that the format cannot hold.
    """
    path = Path(path).expanduser()
    chosen = require_format(path, format_name)
    if chosen == PROJECTOR:
        return write_projector(path, vectors)
    with appearing_file(path) as file:
        FORMATS[chosen].write(file, vectors)
    return [path]


def require_format(path: str | Path, format_name: str) -> str:
    """The format to write: ``format_name``, or that of the file's name: .npz, .bin, .txt or .vec (word2vec).

    Raises ConfigError where there is none such, for a file where there is a folder, and for a folder where there is a file.
    """
    path = Path(path).expanduser()
    chosen = format_name or SUFFIXES.get(path.suffix, "")
    if chosen not in (*FORMATS, PROJECTOR):
        problem = (
            f"{format_name!r} is not a format" if format_name else f"{path.name} does not end in {', '.join(SUFFIXES)}"
        )
        raise ConfigError(f"--output_format: {problem}; give one of {', '.join([*FORMATS, PROJECTOR])}")
    if chosen == PROJECTOR and path.is_file():
        raise ConfigError(f"--output: {path} is a file; the projector takes a folder")
    if chosen != PROJECTOR and path.is_dir():
        raise ConfigError(f"--output: {path} is a folder; give a file")
    return chosen


def write_projector(folder: Path, vectors: WordVectors) -> list[Path]:
    """Writes what TensorBoard's projector reads: vectors.tsv, metadata.tsv (the words), and the file that names both.

    ``tensorboard --logdir FOLDER`` shows them, and so does projector.tensorflow.org, to which the two tables can be given.
    A tab or line end in a word becomes a space.
    """
    table, names, config = folder / "vectors.tsv", folder / "metadata.tsv", folder / "projector_config.pbtxt"
    with appearing_file(table) as file:
        for row in vectors.matrix:
            file.write(f"{numbers_text(row, chr(9))}\n".encode())
    with appearing_file(names) as file:
        for word in vectors.words:
            file.write(f"{' '.join(word.split()) or '(space)'}\n".encode())
    files = f'  tensor_path: "{table.name}"\n  metadata_path: "{names.name}"\n'
    write_whole(config, f'embeddings {{\n  tensor_name: "word vectors"\n{files}}}\n')
    return [table, names, config]


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix


def _named(path: Path, words: list[str], matrix: np.ndarray) -> WordVectors:
    try:
        return WordVectors(tuple(words), matrix)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
