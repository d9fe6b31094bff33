"""Test sets of word vectors, analogies and rated word pairs, and gensim's scores on them."""

import csv
import math
import re
import string
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.data.text_files import ascii_words, read_lines, visible
from transformer_jax.errors import DataError
from transformer_jax.files.terminal import text_table
from transformer_jax.tools.word_vectors.keyed_vectors import WORD_START, KeyedVectors, keyed_vectors

SECTION_MARK = ":"
COMMENT_MARK = "#"
SYNTACTIC_MARK = "gram"
SEPARATORS = ("\t", ",", ";")
ENDINGS = (".txt", ".tsv", ".csv")
NO_TEST_SETS = ("license", "readme", "copying")
NO_SEPARATORS = re.compile(r"[^\S \t\n\r\f\v]")
"""White space that is a part of a word."""
WORD_HEADING = re.compile(r"(word|term|w)[12]?")
SCORE_HEADINGS = ("simlex999", "mean", "average", "score", "similarity", "relatedness", "rating")
"""Parts of the headings of a column of scores, lower case without marks, in order of preference."""


class WordTestSet(NamedTuple):
    """A test set as gensim reads it.

    Args:
        kind: analogies or similarity.
        lines: of analogies ``: section`` and four words, else two words and a score between tabs.
        totals: questions by section, ``{"": pairs}`` for similarity.
        reading: how the file was read.
    """

    name: str
    kind: str
    lines: Sequence[str]
    totals: dict[str, int]
    reading: str


def read_test_sets(paths: Sequence[str]) -> list[WordTestSet]:
    """Read test sets from files, and from all .txt, .tsv and .csv files below folders.

    A file of analogies has lines of four words, and ``: section`` between them. A file of pairs has
    a pair and its score a line, in columns that tabs, commas, semicolons or spaces separate, and
    may begin with a heading. Raises DataError if a file is missing, a folder has none, two have the
    same name, or a line has neither form.
    """
    files: list[Path] = []
    for path in (Path(text).expanduser() for text in paths):
        inside = [path]
        if path.is_dir():
            inside = sorted(
                file for file in path.rglob("*") if file.suffix in ENDINGS and file.stem.lower() not in NO_TEST_SETS
            )
        if not inside:
            raise DataError(f"{path}: no test sets in this folder; expected files that end in {', '.join(ENDINGS)}")
        files += inside
    test_sets: dict[str, WordTestSet] = {}
    for file in dict.fromkeys(file.resolve() for file in files):
        if file.stem in test_sets:
            raise DataError(f"{file}: another test set has the name {file.stem}; rename one")
        test_sets[file.stem] = _read_test_set(file)
    return list(test_sets.values())


def _read_test_set(path: Path) -> WordTestSet:
    lines = [(number, line) for number, text in enumerate(read_lines(path), start=1) if (line := text.strip(" \t\r"))]
    if not lines:
        raise DataError(f"{path}: the file is empty; expected analogies or pairs of words")
    # Only pairs have a heading.
    sample = lines[:2][-1][1]
    separator = next((mark for mark in SEPARATORS if mark in sample), "")
    fields = _fields(sample, separator)
    score = next((index for index, field in enumerate(fields) if index > 1 and _is_number(field)), None)
    has_four_words = len(fields) == 4 and not separator and score is None
    if has_four_words or any(_is_section(line) for _, line in lines[:2]):
        return _analogies(path, lines)
    if score is None:
        number = lines[:2][-1][0]
        raise DataError(f"{path}, line {number}: {_shown(sample)} is neither four words nor two words and a number")
    return _pairs(path, lines, separator, score)


def _analogies(path: Path, lines: Sequence[tuple[int, str]]) -> WordTestSet:
    sections: dict[str, list[str]] = {}
    name = path.stem
    for number, line in lines:
        if _is_section(line):
            name = line.removeprefix(SECTION_MARK).strip()
            continue
        if (words := len(_fields(line, ""))) != 4:
            problem = f"{words} words, expected four, or ': ' and the name of a section"
            raise DataError(f"{path}, line {number}: {problem}")
        sections.setdefault(name, []).append(line)
    if not sections:
        raise DataError(f"{path}: no question; expected lines of four words")
    totals = {name: len(questions) for name, questions in sections.items()}
    text = [line for name, questions in sections.items() for line in (f": {name}", *questions)]
    return WordTestSet(path.stem, "analogies", text, totals, f"analogies, {len(totals):,} sections")


def _is_section(line: str) -> bool:
    """Return whether a line is ``: family`` or ``:family``. Others begin with words, as ``:)``."""
    words = _fields(line, "")
    return line.startswith(SECTION_MARK) and (words[0] == SECTION_MARK or len(words) == 1)


def _pairs(path: Path, lines: Sequence[tuple[int, str]], separator: str, score: int) -> WordTestSet:
    """Read pairs by the headings of their columns, else the first two columns and ``score``."""
    heading = _fields(lines[0][1], separator)
    has_heading = len(lines) > 1 and not (score < len(heading) and _is_number(heading[score]))
    columns, listing = (0, 1, score), f"columns 1, 2 and {score + 1}"
    has_columns = len(heading) == len(_fields(lines[1 % len(lines)][1], separator))
    if has_heading and not has_columns and not lines[0][1].startswith(COMMENT_MARK):
        problem = f"{_shown(lines[0][1])} is neither two words and a number nor a heading of the columns of line {lines[1][0]}"
        raise DataError(f"{path}, line {lines[0][0]}: {problem}")
    if has_heading and has_columns:
        names = [re.sub(r"[^a-z0-9]", "", field.lower()) for field in heading]
        words = [index for index, name in enumerate(names) if WORD_HEADING.fullmatch(name)]
        first, second = words if len(words) == 2 else columns[:2]
        scores = [index for part in SCORE_HEADINGS for index, name in enumerate(names) if part in name]
        columns = first, second, next(iter(scores), score)
        listing = f"columns {', '.join(repr(heading[index]) for index in columns)}"
    pairs = []
    for number, line in lines[has_heading:]:
        row = _fields(line, separator)
        pair = [row[index] if index < len(row) else "" for index in columns]
        if not (all(pair) and _is_number(pair[-1])):
            raise DataError(f"{path}, line {number}: {_shown(line)} is not two words and a number")
        pairs.append("\t".join(pair))
    note = f"its heading, line {lines[0][0]}, left out" if has_heading else "without a heading"
    return WordTestSet(path.stem, "similarity", pairs, {"": len(pairs)}, f"rated pairs, {listing}; {note}")


def _fields(line: str, separator: str) -> list[str]:
    """Split a line at a separator, with quotes as in CSV, or at ASCII white space."""
    if not separator:
        return ascii_words(line)
    return [
        field.strip(string.whitespace) for field in next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    ]


def _shown(line: str) -> str:
    return f"'{visible(line[:80])}'"


def _is_number(field: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(field))
    return False


class Score(NamedTuple):
    """Accuracy of analogies, or Spearman's rank correlation, over the ``covered`` items.

    None if undefined.
    """

    name: str
    value: float | None
    covered: int
    total: int


class Scores(NamedTuple):
    """Scores on a test set. ``parts`` are sections of analogies and their sums."""

    test_set: WordTestSet
    parts: Sequence[Score]
    overall: Score


class VectorReport(NamedTuple):
    """The evaluation of a table ``[num_words, dimension]``."""

    num_words: int
    dimension: int
    scores: Sequence[Scores]

    def to_json(self) -> dict[str, Any]:
        sets = [
            {"name": test_set.name, "kind": test_set.kind, "reading": test_set.reading}
            | {"parts": [part._asdict() for part in parts], "overall": overall._asdict()}
            for test_set, parts, overall in self.scores
        ]
        return {"num_words": self.num_words, "dimension": self.dimension, "test_sets": sets}

    def headline(self) -> dict[str, float]:
        """Return the defined metrics to log.

        ``analogies`` is the accuracy over all sets, ``similarity`` the mean of ``spearman_NAME``,
        ``coverage`` the covered share of questions and pairs.
        """
        analogies = [score for score in self.scores if score.test_set.kind == "analogies"]
        ranks = {
            f"spearman_{score.test_set.name}": score.overall.value
            for score in self.scores
            if score.test_set.kind == "similarity" and score.overall.value is not None
        }
        numbers = {"analogies": _sum("", [score.overall for score in analogies]).value}
        for name in ("semantic", "syntactic"):
            parts = [part for score in analogies for part in score.parts if part.name == name]
            numbers[f"analogies_{name}"] = _sum("", parts).value
        numbers["similarity"] = sum(ranks.values()) / len(ranks) if ranks else None
        overall = [score.overall for score in self.scores]
        numbers["coverage"] = sum(score.covered for score in overall) / max(sum(score.total for score in overall), 1)
        return {name: number for name, number in numbers.items() if number is not None} | ranks

    def table(self) -> str:
        rows = [("test set", "score", "covered", "coverage")]
        for test_set, parts, overall in self.scores:
            sections = [(f"{test_set.name}: {part.name}", part) for part in parts if part.total]
            for name, score in [*sections, (test_set.name, overall)]:
                number = "-" if score.value is None else f"{score.value:.4f}"
                number = f"{100 * score.value:.2f} %" if score.value is not None and parts else number
                covered = f"{score.covered:,} of {score.total:,}", f"{100 * score.covered / score.total:.1f} %"
                rows.append((name, number, *covered))
        readings = "\n".join(f"{scores.test_set.name}: {scores.test_set.reading}" for scores in self.scores)
        meaning = (
            "Scores are accuracy or Spearman's rank correlation, over covered items, whose words all have vectors."
        )
        size = f"{self.num_words:,} words, {self.dimension} dimensions"
        return "\n\n".join([size, readings, text_table(rows, "lrrr"), meaning])

    def without_coverage(self) -> list[str]:
        """Return the names of test sets without a covered question or pair."""
        return [score.test_set.name for score in self.scores if not score.overall.covered]


def evaluate_vectors(vectors: KeyedVectors, test_sets: Sequence[WordTestSet]) -> VectorReport:
    """Answer the analogies by 3CosAdd, and rank the pairs by cosine, ignoring case."""
    words = _as_words(vectors)
    score = {"analogies": _score_analogies, "similarity": _score_similarity}
    scores = [score[test_set.kind](words, test_set) for test_set in test_sets]
    return VectorReport(len(vectors), vectors.vector_size, scores)


def _as_words(vectors: KeyedVectors) -> KeyedVectors:
    """Return the vectors by word. In a table of pieces "▁in" is the word, not "in"."""
    if not any(word.startswith(WORD_START) for word in vectors.index_to_key):
        return vectors
    rows: dict[str, int] = {}
    for row, piece in sorted(enumerate(vectors.index_to_key), key=lambda item: not item[1].startswith(WORD_START)):
        rows.setdefault(piece.removeprefix(WORD_START), row)
    return keyed_vectors(list(rows), vectors.vectors[list(rows.values())])


def _score_analogies(vectors: KeyedVectors, test_set: WordTestSet) -> Scores:
    lines = "\n".join(test_set.lines)
    # gensim splits lines at other spaces too.
    vectors, lines = _as_letters(NO_SEPARATORS.findall(lines), vectors, lines)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(lines)
        file.flush()
        *sections, _ = vectors.evaluate_word_analogies(file.name, restrict_vocab=None)[1]
    parts = []
    for (name, total), answers in zip(test_set.totals.items(), sections, strict=True):
        right, covered = len(answers["correct"]), len(answers["correct"]) + len(answers["incorrect"])
        parts.append(Score(name, right / covered if covered else None, covered, total))
    syntactic = [part for part in parts if part.name.startswith(SYNTACTIC_MARK)]
    semantic = [part for part in parts if part not in syntactic]
    sums = [_sum("semantic", semantic), _sum("syntactic", syntactic)]
    return Scores(test_set, [*parts, *sums], _sum(test_set.name, parts))


def _score_similarity(vectors: KeyedVectors, test_set: WordTestSet) -> Scores:
    vocabulary = {word.upper() for word in vectors.index_to_key}
    covered = [line for line in test_set.lines if vocabulary.issuperset(line.upper().split("\t")[:2])]
    value = None
    # gensim needs two pairs, and NumPy warns if all scores are equal.
    if len(covered) > 1:
        # gensim skips such lines.
        marks = [COMMENT_MARK] * any(line.startswith(COMMENT_MARK) for line in covered)
        vectors, lines = _as_letters(marks, vectors, "\n".join(covered))
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.write(lines)
            file.flush()
            rank = float(vectors.evaluate_word_pairs(file.name, restrict_vocab=None)[1][0])
        value = rank if math.isfinite(rank) else None
    return Scores(test_set, (), Score(test_set.name, value, len(covered), len(test_set.lines)))


def _as_letters(characters: Iterable[str], vectors: KeyedVectors, text: str) -> tuple[KeyedVectors, str]:
    """Replace ``characters`` of words with a meaning for gensim by private letters."""
    letters = {ord(character): 0xE000 + index for index, character in enumerate(sorted(set(characters)))}
    if not letters:
        return vectors, text
    words = [word.translate(letters) for word in vectors.index_to_key]
    return keyed_vectors(words, vectors.vectors), text.translate(letters)


def _sum(name: str, scores: Sequence[Score]) -> Score:
    """Return the accuracy over all covered questions of several scores."""
    covered = sum(score.covered for score in scores)
    right = sum(round(score.value * score.covered) for score in scores if score.value is not None)
    return Score(name, right / covered if covered else None, covered, sum(score.total for score in scores))
