"""A report as data: sections of paragraphs, tables and pictures, that each writer puts into its own format."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the columns ``of_text``, counted from 0, are aligned left, the others right.

    The texts of ``linked`` columns are paths of files and folders.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    of_text: frozenset[int] = frozenset({0})
    linked: frozenset[int] = frozenset()

    def is_text(self, column: int) -> bool:
        """Whether a column is aligned left."""
        return column in self.of_text


@dataclass(frozen=True)
class Picture:
    """A PNG: the name of its file, which lies beside the report, its bytes, what it shows in words, and a text below it."""

    name: str
    png: bytes
    words: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; a text is a paragraph."""

    title: str
    blocks: tuple[str | Table | Picture, ...]


@dataclass(frozen=True)
class Document:
    """A title and its sections."""

    title: str
    sections: tuple[Section, ...]
