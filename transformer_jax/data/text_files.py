"""Text files: UTF-8, one sentence a line, plain, gzip or xz; errors name file and line."""

import contextlib
import gzip
import hashlib
import io
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformer_jax.config import DataError

# Larger files are hashed by samples.
WHOLE_HASH_BYTES = 1 << 28
_SAMPLE_BYTES = 1 << 16
_NUM_SAMPLES = 256
READ_AT_ONCE = 1 << 20
LINE_LIMIT = 1 << 26
# An unfinished line of this length is looked through for NUL bytes.
_LONG_LINE = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_TEXT = {
    b"\x1f\x8b": "looks like gzip; name it .gz",
    b"\xfd7zXZ\0": "looks like xz; name it .xz",
    b"PK\x03\x04": "looks like a zip archive; unpack it",
    b"BZh": "looks like bzip2; unpack it",
    b"\xff\xfe": "is UTF-16; convert it to UTF-8",
    b"\xfe\xff": "is UTF-16; convert it to UTF-8",
}
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNREADABLE = (EOFError, OSError, zlib.error, lzma.LZMAError)
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that Unicode calls ignorable, such as variation selectors."""
_FILLERS = "\u115f\u1160\u3164\uffa0"
"""The letters among them."""


def as_one_line(text: str) -> str:
    return re.sub(r"[\n\r\t]", " ", text)


def ascii_words(text: str) -> list[str]:
    """Return the words between ASCII white space; U+00A0 and U+3000 are parts of a word."""
    return re.findall(r"\S+", text, re.ASCII)


def is_invisible(character: str) -> bool:
    """Return whether a character is invisible: white space, control, format or ignorable."""
    return unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp") or bool(_INVISIBLE.match(character))


def says_nothing(text: str) -> bool:
    # Most texts begin with a letter, which takes a tenth of the time.
    begins_visibly = text[:1].isalpha() and text[0] not in _FILLERS
    return not begins_visibly and all(map(is_invisible, text))


def visible(text: str) -> str:
    """Show invisible characters other than the space as ``<U+00A0>``, for a message."""
    return "".join(f"<U+{ord(sign):04X}>" if sign != " " and is_invisible(sign) else sign for sign in text)


def read_lines(path: Path, skipped: int = 0) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain, ``.gz`` or ``.xz``, after ``skipped`` lines.

    Lines end at line feeds only: other separators (U+2028, U+0085, vertical tab ...) are part of a
    sentence. A carriage return at the end of a line (files from Windows) and a byte order mark at
    the start of the file are removed. Raises DataError, with file and line number from 1, on
    invalid UTF-8, NUL bytes, damaged archives and a line beyond 64 MiB.
    """
    for text in text_blocks(path, skipped):
        lines = text.split("\n")
        yield from (line.removesuffix("\r") for line in lines) if "\r" in text else lines


def text_blocks(path: Path, skipped: int = 0) -> Iterator[str]:
    """Yield many lines of ``read_lines`` at a time, with carriage returns and line feeds."""
    read = 0
    for lines, block in line_blocks(path):
        block = block if read else block.removeprefix(BYTE_ORDER_MARK)
        passed = min(max(skipped - read, 0), lines)
        read += lines
        if passed == lines:
            continue
        unread = block.split(b"\n", passed)[passed] if passed else block
        with contextlib.suppress(UnicodeDecodeError):
            text = unread.decode("utf-8")
            if "\0" not in text:
                yield text.removesuffix("\n")
                continue
        for number, line in enumerate(unread.removesuffix(b"\n").split(b"\n"), start=read - lines + passed + 1):
            yield check_sentence(line, f"{path}, line {number}")


def sentence_of_line(line: bytes, name: str, number: int) -> str:
    """Return the text of line ``number`` (from 1), or raise DataError as ``read_lines``."""
    if number == 1:
        require_no_archive(line, name)
        line = line.removeprefix(BYTE_ORDER_MARK)
    return check_sentence(line.removesuffix(b"\r"), f"{name}, line {number}")


def check_sentence(raw: bytes, where: str) -> str:
    """Decode a sentence, or raise DataError with ``where`` if it has bad UTF-8 or NUL bytes."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = raw[error.start : error.start + 1].hex()
        problem = f"invalid UTF-8: byte 0x{bad} at byte offset {error.start} of the line; convert the text to UTF-8"
        raise DataError(f"{where}: {problem}") from None
    if "\0" in text:
        raise _no_text(raw, where)
    return text


def _no_text(raw: bytes, where: str) -> DataError:
    offset = raw.index(b"\0")
    problem = f"NUL byte at byte offset {offset} of the line; this is not a text file, or a damaged one"
    return DataError(f"{where}: {problem}")


class UnfinishedLine:
    """The bytes of a line that has not ended yet, at most ``LINE_LIMIT``."""

    def __init__(self) -> None:
        self._blocks, self._size = list[bytes](), 0

    def add(self, block: bytes, name: object, number: int) -> None:
        """Append the next bytes of a line, or raise DataError if it is too long or no text."""
        if not self._blocks and len(block) >= _LONG_LINE and b"\0" in block:
            raise _no_text(block, f"{name}, line {number}")
        self._blocks.append(block)
        self._size += len(block)
        if self._size > LINE_LIMIT:
            problem = f"longer than {LINE_LIMIT >> 20} MiB; text has one sentence or document a line"
            raise DataError(f"{name}, line {number}: {problem}")

    def take(self, end: bytes = b"") -> bytes:
        """Return the line with its ``end``, and begin the next one."""
        line = b"".join([*self._blocks, end])
        self._blocks, self._size = [], 0
        return line


def require_no_archive(start: bytes, name: str) -> None:
    """Raise DataError if ``start`` is the beginning of a known format that is not UTF-8 text."""
    for magic, problem in _NO_TEXT.items():
        if start.startswith(magic):
            raise DataError(f"{name}: {problem}")


def line_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines of a plain, ``.gz`` or ``.xz`` file, many at a time with their number.

    The last may have no line feed. ``~`` at the start of the path is the home folder. Raises
    DataError, with the number of the last sound line, if the file cannot be read, is damaged, has a
    line that is too long or is not text.
    """
    read, unfinished, is_begun = 0, UnfinishedLine(), False
    try:
        with _open(path) as stream:
            # Unlike read, read1 returns the sound bytes before the damage.
            for block in iter(partial(stream.read1, READ_AT_ONCE), b""):
                if not is_begun:
                    require_no_archive(block, str(path))
                    is_begun = True
                if end := block.rfind(b"\n") + 1:
                    whole = unfinished.take(block[:end])
                    lines = whole.count(b"\n")
                    yield lines, whole
                    read += lines
                unfinished.add(block[end:], path, read + 1)
    except _UNREADABLE as error:
        raise _unreadable(path, error, f" after line {read:,}" if read else "") from None
    if last := unfinished.take():
        yield 1, last


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines, with their line feeds, or raise DataError as ``line_blocks``."""
    for _, block in line_blocks(path):
        yield from io.BytesIO(block)


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, or raise DataError as ``line_blocks``."""
    return sum(lines for lines, _ in line_blocks(path))


@contextlib.contextmanager
def opened_bytes(path: Path) -> Iterator[Any]:
    """Open a plain, ``.gz`` or ``.xz`` file, or raise DataError if it cannot be read."""
    try:
        with _open(path) as stream:
            yield stream
    except _UNREADABLE as error:
        raise _unreadable(path, error) from None


def _open(path: Path) -> Any:
    return OPENERS.get(path.suffix, open)(path.expanduser(), "rb")


def _unreadable(path: Path, error: Exception, where: str = "") -> DataError:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return DataError(f"{path}: cannot be read{where}: {error.strerror or error}")
    kind = "xz" if path.suffix == ".xz" else "gzip"
    damaged = f", damaged{where}" if where else ""
    return DataError(f"{path}: not a complete {kind} file{damaged} ({error}); copy it again")


def hash_file(path: Path, *, with_time: bool = True) -> str:
    """Return SHA-256 of a file's content, or above 256 MiB of its size and 256 samples.

    ``with_time``: of the modification time of such a file too.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size <= WHOLE_HASH_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hasher = hashlib.sha256(f"{size} {path.stat().st_mtime_ns if with_time else ''}".encode())
        for index in range(_NUM_SAMPLES):
            file.seek(index * (size - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
            hasher.update(file.read(_SAMPLE_BYTES))
        return hasher.hexdigest()


def plain_or_compressed(path: Path) -> Path | None:
    """Return the file, or its ``.gz`` or ``.xz``, or None, or raise DataError if several exist."""
    files = [file for suffix in ("", *OPENERS) if (file := path.with_name(f"{path.name}{suffix}")).is_file()]
    require_one_file(files)
    return files[0] if files else None


def require_one_file(paths: Sequence[Path]) -> None:
    """Raise DataError if there are several of a file, its ``.gz`` and its ``.xz``."""
    if len(paths) > 1:
        raise DataError(f"{paths[0].parent}: both {paths[0].name} and {paths[1].name} exist; remove one")


def plain_name(path: Path) -> str:
    return path.stem if path.suffix in OPENERS else path.name
