"""Parallel text files: one sentence a line, two files a split or one file of tab-separated pairs, plain or gzip."""

import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformer_jax.config import DataError
from transformer_jax.config.addresses import absolute_path
from transformer_jax.data.sentence_pairs import SentencePair, did_you_mean, digest

WHOLE_HASH_BYTES = 1 << 28
_SAMPLE_BYTES = 1 << 16
_READ_AT_ONCE = 1 << 20
_NUM_SAMPLES = 256
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_TEXT = {
    b"\x1f\x8b": "looks like gzip; name it .gz",
    b"\xfd7zXZ\0": "looks like xz; unpack it, or name it .xz where that is read",
    b"PK\x03\x04": "looks like a zip archive; unpack it",
    b"BZh": "looks like bzip2; unpack it",
    b"\xff\xfe": "is UTF-16; convert it to UTF-8",
    b"\xfe\xff": "is UTF-16; convert it to UTF-8",
    b"\x7fELF": "is not a text file",
    b"\x89PNG": "is not a text file",
    b"%PDF-": "is not a text file",
}
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


_LINE_BREAKS = re.compile(r"[\n\r\t]")


def as_one_line(text: str) -> str:
    """The text with spaces for line breaks and tabs, as a line of output must be."""
    return _LINE_BREAKS.sub(" ", text)


def check_sentence(raw: bytes, where: str) -> str:
    """Decodes one sentence; raises DataError that starts with ``where`` on invalid UTF-8 and on NUL bytes."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.start + 1].hex()
        problem = f"invalid UTF-8: byte 0x{bad} at byte offset {error.start} of the line; convert the text to UTF-8"
        raise DataError(f"{where}: {problem}") from None
    if "\0" in text:
        offset = raw.index(b"\0")
        raise DataError(
            f"{where}: NUL byte at byte offset {offset} of the line; this is not a text file, or a damaged one"
        )
    return text


def raw_lines(path: Path) -> Iterator[bytes]:
    """Lines with their line feed, one at a time, of a file that is plain, ``.gz`` or ``.xz``: concatenated, all of its bytes.

    ``~`` at the start of the path is the home folder. Raises DataError when it cannot be read, or is damaged.
    """
    line_number = 0
    try:
        opened = _OPENERS.get(path.suffix, open)(path.expanduser(), "rb")
        with opened, io.BufferedReader(opened, 1 << 20) as stream:
            for line in stream:
                yield line
                line_number += 1
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        kind = "xz" if path.suffix == ".xz" else "gzip"
        raise DataError(
            f"{path}: not a whole {kind} file, damaged after line {line_number} ({error}); copy it again"
        ) from None
    except OSError as error:
        place = f" after line {line_number}" if line_number else ""
        raise DataError(f"{path}: cannot be read{place}: {error.strerror or error}") from None


def raw_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of such a file in large blocks; raises DataError as ``raw_lines`` does."""
    try:
        with _OPENERS.get(path.suffix, open)(path.expanduser(), "rb") as stream:
            yield from iter(partial(stream.read, _READ_AT_ONCE), b"")
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def read_lines(path: Path) -> Iterator[str]:
    """Streams the lines of a UTF-8 file, plain or ``.gz``.

    Lines end at line feeds only: other separators (U+2028, U+0085, vertical tab ...) are part of a sentence. One carriage
    return before the line end is removed (files from Windows), and so is a byte order mark at the start of the file. Nothing
    else is touched.
    Raises DataError, with file and line number from 1, on invalid UTF-8, a NUL byte and a damaged gzip file.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        yield sentence_of_line(raw.removesuffix(b"\n"), str(path), number)


def sentence_of_line(line: bytes, name: str, number: int) -> str:
    """The text of line ``number``, from 1, of the file ``name``; raises DataError as ``read_lines`` does."""
    if number == 1:
        require_no_archive(line, name)
        line = line.removeprefix(_BYTE_ORDER_MARK)
    return check_sentence(line.removesuffix(b"\r"), f"{name}, line {number}")


def require_no_archive(start: bytes, name: str) -> None:
    """Raises DataError where a file begins as no text does, and says what it is."""
    for magic, problem in _NO_TEXT.items():
        if start.startswith(magic):
            raise DataError(f"{name}: {problem}")


def hash_file(path: Path) -> str:
    """SHA-256 of a file's content; above 256 MiB of its size, modification time and 256 samples spread over it."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size <= WHOLE_HASH_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hasher = hashlib.sha256(f"{size} {path.stat().st_mtime_ns}".encode())
        for index in range(_NUM_SAMPLES):
            file.seek(index * (size - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
            hasher.update(file.read(_SAMPLE_BYTES))
        return hasher.hexdigest()


@dataclass(frozen=True)
class TextCorpus:
    """Parallel text in a folder: ``{split}.{language}`` twice, or ``{split}.tsv`` (source, tab, target); each plain or .gz.

    Line n of one file translates line n of the other. Empty lines and lines of any length are passed on: the token store
    counts and filters. Memory does not grow with the corpus. Raises DataError as ``read_lines`` does, and on a missing or
    ambiguous file, different line counts, a TSV line without exactly one tab, and an empty split.
    """

    directory: str
    source_language: str
    target_language: str

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams a split in file order."""
        paths = self.files(split)
        return self._tab_separated(paths[0]) if len(paths) == 1 else self._side_by_side(*paths)

    def count(self, split: str) -> int:
        """Number of lines of a split's first file."""
        return sum(block.count(b"\n") for block in raw_blocks(self.files(split)[0]))

    def fingerprint(self, split: str) -> str:
        """Digest of the content of the split's files, source first; where the files lie does not matter."""
        return digest(f"{path.name.removeprefix(split)} {hash_file(path)}" for path in self.files(split))

    def files(self, split: str) -> tuple[Path, ...]:
        """The one (TSV) or two (source, target) files of a split."""
        folder = Path(absolute_path(self.directory, "data.directory"))
        if not folder.is_dir():
            raise DataError(f"data.directory: {str(folder)!r} is not a folder")
        table = _plain_or_gzip(folder, f"{split}.tsv")
        sides = [
            _plain_or_gzip(folder, f"{split}.{language}") for language in (self.source_language, self.target_language)
        ]
        if table and any(sides):
            raise DataError(
                f"{folder}: both {table.name} and {split}.* files of single languages exist; remove one of the two"
            )
        if table:
            return (table,)
        if None in sides:
            raise DataError(self._what_is_missing(folder, split))
        return tuple(path for path in sides if path)

    def _what_is_missing(self, folder: Path, split: str) -> str:
        names = sorted(name.removesuffix(".gz") for name in (path.name for path in folder.iterdir()))
        languages = sorted({name[len(split) + 1 :] for name in names if name.startswith(f"{split}.")} - {"tsv"})
        if not languages:
            endings = self.source_language, self.target_language, "tsv"
            splits = sorted(
                {name.rpartition(".")[0] for name in names if name.endswith(tuple(f".{e}" for e in endings))}
            )
            listed = ", ".join(splits[:20]) or f"none, only {', '.join(names[:20]) or 'an empty folder'}"
            wanted = f"{split}.{self.source_language} and {split}.{self.target_language} (or {split}.tsv), plain or .gz"
            is_role = split in ("train", "validation", "test")
            name = next((each for each in splits if split.startswith(each)), "NAME")
            remedy = f"; where it has another name, set --config.data.{split}_split={name}" if is_role else ""
            hint = did_you_mean(split, splits) + remedy
            return f"{folder}: no split {split!r}; expected {wanted}; splits found: {listed}{hint}"
        sides = {"source_language": self.source_language, "target_language": self.target_language}
        setting, missing = next((name, language) for name, language in sides.items() if language not in languages)
        found = ", ".join(languages[:20])
        remedy = f"{did_you_mean(missing, languages)}; set --config.data.{setting}=LANGUAGE"
        return f"{folder}: no file {split}.{missing} (or .gz); languages found: {found}{remedy}"

    def _tab_separated(self, path: Path) -> Iterator[SentencePair]:
        number = 0
        for number, line in enumerate(read_lines(path), start=1):
            if line.count("\t") != 1:
                problem = f"{line.count(chr(9))} tabs, expected exactly one, between source and target"
                raise DataError(f"{path}, line {number}: {problem}")
            yield SentencePair(*line.split("\t"))
        if not number:
            raise DataError(f"{path}: the file is empty; expected lines of source, tab, target")

    def _side_by_side(self, source_path: Path, target_path: Path) -> Iterator[SentencePair]:
        sources, targets = read_lines(source_path), read_lines(target_path)
        count = 0
        while True:
            source, target = next(sources, None), next(targets, None)
            if source is None or target is None:
                break
            count += 1
            yield SentencePair(source, target)
        source_count = count + (source is not None) + sum(1 for _ in sources)
        target_count = count + (target is not None) + sum(1 for _ in targets)
        if source_count != target_count:
            counts = f"{source_path} has {source_count} lines but {target_path} has {target_count}"
            raise DataError(f"{counts}; line n of one must translate line n of the other")
        if not count:
            raise DataError(f"{source_path} and {target_path}: the files are empty; expected one sentence a line")


def is_text_file(path: Path) -> bool:
    """Whether the file is there; raises DataError where the name is that of a folder, a broken link, a pipe or a device."""
    if path.is_file() or not os.path.lexists(path):
        return path.is_file()
    kinds = {"a directory": path.is_dir(), "a pipe": path.is_fifo(), "a socket": path.is_socket()}
    is_device = path.is_block_device() or path.is_char_device()
    kind = next(
        (kind for kind, is_it in kinds.items() if is_it), "a device" if is_device else "a link that leads nowhere"
    )
    raise DataError(f"{path} is {kind}; give a text file")


def _plain_or_gzip(folder: Path, name: str) -> Path | None:
    found = [path for path in (folder / name, folder / f"{name}.gz") if is_text_file(path)]
    if len(found) == 2:
        raise DataError(f"{folder}: both {name} and {name}.gz exist; remove the one that is not meant")
    return found[0] if found else None
