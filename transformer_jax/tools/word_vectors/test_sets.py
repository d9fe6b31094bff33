"""Test sets of word vectors: analogies in sections, and pairs of words whose similarity people have judged."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_jax.config.errors import DataError
from transformer_jax.data.text_files import read_lines

SECTION_MARK = ":"
SYNTACTIC_MARK = "gram"
SEPARATORS = ("\t", ",", ";")
ENDINGS = (".txt", ".tsv", ".csv")

Question = tuple[str, str, str, str]
"""a, b, c and d of "a is to b as c is to d"."""
JudgedPair = tuple[str, str, float]
"""Two words and how similar people found them."""


@dataclass(frozen=True)
class AnalogySection:
    """Questions of one kind; those of grammar are the sections that Mikolov et al. (2013a, table 1) named ``gram1-...``."""

    name: str
    questions: tuple[Question, ...]

    @property
    def is_syntactic(self) -> bool:
        """Whether the questions are about forms of words, not their meaning."""
        return self.name.startswith(SYNTACTIC_MARK)


@dataclass(frozen=True)
class AnalogySet:
    """A file of analogies."""

    name: str
    sections: tuple[AnalogySection, ...]


@dataclass(frozen=True)
class SimilaritySet:
    """A file of judged pairs."""

    name: str
    pairs: tuple[JudgedPair, ...]


@dataclass(frozen=True)
class WordTestSets:
    """What word vectors are evaluated on."""

    analogies: tuple[AnalogySet, ...] = ()
    similarities: tuple[SimilaritySet, ...] = ()


def read_test_sets(paths: Sequence[str]) -> WordTestSets:
    """The sets in files, and in folders with all that lies below, by name.

    A file of analogies has lines ``: section`` and four words on each of the others. A file of pairs has two words and a
    number, separated by tabs, spaces, commas or semicolons; its first line may be a heading. Files of folders end in .txt,
    .tsv or .csv.

    Raises DataError when there is no such file, none in a folder, and, with file and line, at a line of neither form.
    """
    files: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        below = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS) if path.is_dir() else [path]
        if not below:
            raise DataError(f"{path}: no test sets in this folder; expected files that end in {', '.join(ENDINGS)}")
        files += [file for file in below if not (path.is_dir() and _is_license(file))]
    files = list(dict.fromkeys(file.resolve() for file in files))
    names = Counter(file.stem for file in files)
    for file in files:
        if names[file.stem] > 1:
            raise DataError(f"{file}: {names[file.stem]} test sets are named {file.stem}; rename all but one")
    found = [read_test_set(file) for file in files]
    return WordTestSets(
        tuple(each for each in found if isinstance(each, AnalogySet)),
        tuple(each for each in found if isinstance(each, SimilaritySet)),
    )


def read_test_set(path: Path) -> AnalogySet | SimilaritySet:
    """One file, of either form; see ``read_test_sets``."""
    lines = [(number, line.strip()) for number, line in enumerate(read_lines(path), start=1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise DataError(f"{path}: the file is empty; expected analogies or pairs of words")
    first = lines[0][1]
    has_four_words = len(first.split()) == 4 and not any(separator in first for separator in SEPARATORS)
    if first.startswith(SECTION_MARK) or has_four_words:
        return AnalogySet(path.stem, _sections(path, lines))
    return SimilaritySet(path.stem, _pairs(path, lines))


def _sections(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[AnalogySection, ...]:
    sections: dict[str, list[Question]] = {}
    name = path.stem
    for number, line in lines:
        if line.startswith(SECTION_MARK):
            name = line.removeprefix(SECTION_MARK).strip()
            continue
        words = line.split()
        if len(words) != 4:
            raise DataError(
                f"{path}, line {number}: {len(words)} words, expected four, or ': ' and the name of a section"
            )
        a, b, c, d = words
        sections.setdefault(name, []).append((a, b, c, d))
    return tuple(AnalogySection(name, tuple(questions)) for name, questions in sections.items())


def _pairs(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[JudgedPair, ...]:
    pairs = []
    for number, line in lines:
        pair = _judged_pair(line)
        if pair is not None:
            pairs.append(pair)
        elif number != lines[0][0] or len(lines) == 1:
            raise DataError(f"{path}, line {number}: {line[:80]!r} is not two words and a number")
    return tuple(pairs)


def _judged_pair(line: str) -> JudgedPair | None:
    """The two words and the number of a line; None where it has another form."""
    for separator in (*SEPARATORS, None):
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) == 3 and all(fields):
            try:
                judged = float(fields[2])
            except ValueError:
                return None
            return (fields[0], fields[1], judged) if math.isfinite(judged) else None
    return None


def _is_license(file: Path) -> bool:
    return file.stem.lower() in ("license", "readme", "copying")
