"""Sources of plain text for language models: documents whose bytes add up to the file."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from transformer_jax.config import DataError
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data.mixed_corpora import Mixture, parts_of
from transformer_jax.data.sentence_pairs import (
    Document,
    DocumentSource,
    FileSource,
    did_you_mean,
    digest,
    require_split,
)
from transformer_jax.data.text_files import READ_AT_ONCE, check_sentence, hash_file, opened_bytes, raw_lines
from transformer_jax.files.paths import absolute_path

ENDINGS = (".txt", ".txt.gz", ".txt.xz")


def lines(path: Path) -> Iterator[Document]:
    """Yield every line of a file without its line feed, which counts as a byte."""
    for number, raw in enumerate(raw_lines(path), start=1):
        yield Document(check_sentence(raw.removesuffix(b"\n"), f"{path}, line {number}"), len(raw))


def paragraphs(path: Path) -> Iterator[Document]:
    """Yield paragraphs separated by an empty line (LF or CRLF); a line of spaces is not empty.

    Of further empty lines, every two are an empty paragraph. A last single one belongs to the next
    paragraph.
    """
    open_lines: list[str] = []
    num_bytes = 0
    for number, raw in enumerate(raw_lines(path), start=1):
        num_bytes += len(raw)
        if raw in (b"\n", b"\r\n") and open_lines:
            yield Document("".join(open_lines).removesuffix("\n"), num_bytes)
            open_lines, num_bytes = [], 0
        else:
            open_lines.append(check_sentence(raw, f"{path}, line {number}"))
    if open_lines:
        yield Document("".join(open_lines).removesuffix("\n"), num_bytes)


READERS: dict[str, Callable[[Path], Iterator[Document]]] = {"lines": lines, "paragraphs": paragraphs}
SEPARATORS = {"lines": "\n", "paragraphs": "\n\n"}
"""The text that EOS replaces, by ``data.documents``."""


class _TextFile(FileSource):
    documents_are: str

    def file(self, split: str) -> Path:
        raise NotImplementedError

    def documents(self, split: str) -> Iterator[Document]:
        return READERS[self.documents_are](self.file(split))

    def count_bytes(self, split: str) -> int:
        return _size(self.file(split))

    def fingerprint(self, split: str, *, with_time: bool = True) -> str:
        file = self.file(split)
        return digest([*_reading(self.documents_are, file), *self._cut(split), hash_file(file, with_time=with_time)])

    def _cut(self, split: str) -> list[str]:
        return []


def _reading(documents_are: str, file: Path) -> list[str]:
    """Return how a file is read: paragraphs with CRLF were one document in earlier versions."""
    if documents_are == "paragraphs":
        with opened_bytes(file) as stream:
            if b"\r\n\r\n" in stream.read(READ_AT_ONCE):
                return [documents_are, "CRLF"]
    return [documents_are]


@dataclass(frozen=True)
class TextFolder(_TextFile):
    """``{split}.txt`` in a folder, plain, .gz or .xz."""

    directory: str
    documents_are: str

    def file(self, split: str) -> Path:
        """Return the file of a split, or raise DataError unless there is exactly one."""
        folder = Path(absolute_path(self.directory, "data.directory"))
        if not folder.is_dir():
            raise DataError(f"data.directory: {str(folder)!r} is not a folder")
        files = [path for ending in ENDINGS if (path := folder / f"{split}{ending}").is_file()]
        if len(files) > 1:
            raise DataError(f"{folder}: both {files[0].name} and {files[1].name} exist; remove one")
        if not files:
            names = (path.name for path in folder.iterdir())
            splits = sorted({name.partition(".txt")[0] for name in names if name.endswith(ENDINGS)})
            listed = ", ".join(splits[:20]) or "none"
            hint = did_you_mean(split, splits)
            if split == "validation":
                hint += "; or name the text with data.train, whose end is held out"
            raise DataError(f"{folder}: no {split}.txt, plain, .gz or .xz; splits found: {listed}{hint}")
        return files[0]


@dataclass(frozen=True)
class NamedTexts(_TextFile):
    """Files by split: ``train``, and optionally ``validation`` and ``test``.

    Without a file for ``validation``, the end of ``train`` is held out: in a text of N bytes,
    ``validation`` begins with the first document that starts at or after byte N - ``held_out`` N,
    and ``train`` ends there.
    """

    files: Mapping[str, str]
    documents_are: str
    held_out: float

    @property
    def splits(self) -> list[str]:
        return [*dict.fromkeys(("train", "validation", *self.files))]

    def file(self, split: str) -> Path:
        require_split(split, self.splits, f"data.train={self.files['train']}")
        name = split if split in self.files else "train"
        path = Path(absolute_path(self.files[name], f"data.{name}"))
        if not path.is_file():
            hint = ", or several with data.source=mixture" if "=" in self.files[name] else ""
            raise DataError(f"data.{name}: {str(path)!r} is not a file; give one text, plain, .gz or .xz{hint}")
        require_plain_text(path, f"data.{name}")
        return path

    def documents(self, split: str) -> Iterator[Document]:
        """Yield a split, before or after the boundary if a part of the file is held out."""
        start, boundary = 0, self._boundary() if self._cut(split) else None
        for document in super().documents(split):
            if boundary is None or (start >= boundary) == (split == "validation"):
                yield document
            elif split == "train":
                return
            start += document.num_bytes

    @property
    def sources(self) -> Iterator[str]:
        """The texts of ``test``. A text of a user is opened as a source with this split."""
        return (document.text for document in self.documents("test"))

    def count_bytes(self, split: str) -> int:
        """Return the uncompressed bytes of a split. A document may count for two splits in part."""
        size = super().count_bytes(split)
        if not self._cut(split):
            return size
        return self._boundary() if split == "train" else size - self._boundary()

    def is_held_out(self, split: str) -> bool:
        return split in ("train", "validation") and "validation" not in self.files

    def _cut(self, split: str) -> list[str]:
        return [split, str(self.held_out)] if self.is_held_out(split) else []

    def _boundary(self) -> int:
        size = _size(self.file("train"))
        return size - int(size * self.held_out)


@dataclass(frozen=True)
class MixtureDocuments(Mixture):
    def documents(self, split: str) -> Iterator[Document]:
        return itertools.chain.from_iterable([part.documents(split) for part in self.parts(split).values()])

    def count_bytes(self, split: str) -> int:
        return sum(part.count_bytes(split) for part in self.parts(split).values())


def open_documents(data: TextDataConfig, seed: int) -> DocumentSource:
    """Return the source of ``data``, without reading it; ``seed`` determines generated text."""
    if data.source == "grammar":
        from transformer_jax.data.synthetic.grammar import GeneratedParagraphs

        return GeneratedParagraphs(data.generated_sentences, seed)
    if data.source == "mixture":
        return MixtureDocuments({name: _named_texts(part) for name, part in data.corpora.items()})
    return _named_texts(data) if data.train else TextFolder(data.directory, data.documents)


def _named_texts(data: TextDataConfig) -> NamedTexts:
    files = {split: getattr(data, split) for split in ("train", "validation", "test")}
    return NamedTexts({split: file for split, file in files.items() if file}, data.documents, data.held_out)


def no_text(source: DocumentSource, split: str) -> DataError:
    """Return the error of a split without documents, with the remedy that helps."""
    for name, part in parts_of(source, split).items():
        if isinstance(part, NamedTexts) and part.is_held_out(split):
            return DataError(_nothing_held_out(part, split, f" of {name}" * bool(name)))
    return DataError(f"data: the split {split!r} has no text; its file is empty")


def _nothing_held_out(text: NamedTexts, split: str, of: str) -> str:
    sizes = [document.num_bytes for document in _TextFile.documents(text, "train")]
    file, unit = text.files["train"], text.documents_are.removesuffix("s")
    if not sizes:
        return f"data.train{of}: {file} is empty"
    if len(sizes) == 1:
        problem = f"{file} is one {unit}, of which no part can be held out"
        remedy = f"name a text for it, data.validation=FILE, or divide the text into several {unit}s"
        return f"data.train{of}: {problem} for the split {split!r}; {remedy}"
    # Documents that begin in the held-out part are held out, so the last one must.
    total = sum(sizes)
    needed = next(share / 1000 for share in range(1, 1001) if int(total * (share / 1000)) >= sizes[-1])
    problem = f"no {unit} of {file} begins in its last {text.held_out:.1%}"
    if needed < 1:
        remedy = f"set --config.data.held_out={needed:g} (the last {unit} has {sizes[-1] / total:.1%} of the text)"
        return f"data.held_out{of}: {problem}; {remedy}, or name a text, data.validation=FILE"
    return f"data.held_out{of}: {problem}; name a text, data.validation=FILE"


def require_plain_text(path: Path, key: str) -> None:
    """Raise DataError, which begins with ``key``, for suffixes of JSON, a table or markup."""
    if match := re.search(r"\.(jsonl?|csv|tsv|tmx|xml|html?)(\.gz|\.xz)?$", path.name, re.IGNORECASE):
        remedy = "write its texts to a .txt file, one a line, or, to train on all of it, rename it"
        raise DataError(f"{key}: {str(path)!r} is {match[1].upper()}, which would be read as plain text; {remedy}")


def _size(path: Path) -> int:
    """Return the uncompressed bytes of a text, and read an archive only when it has changed."""
    status = path.stat()
    return _unpacked_size(path, status.st_mtime_ns) if path.suffix in (".gz", ".xz") else status.st_size


@lru_cache(maxsize=64)
def _unpacked_size(path: Path, modified_ns: int) -> int:
    del modified_ns
    return sum(map(len, raw_lines(path)))
