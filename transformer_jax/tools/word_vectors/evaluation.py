"""Test sets of word vectors (analogies and rated word pairs), and scores on them."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.config.errors import DataError
from transformer_jax.data.text_files import read_lines
from transformer_jax.evaluation.text_table import text_table
from transformer_jax.tools.word_vectors.neighbors import analogy_queries, search, unit_rows
from transformer_jax.tools.word_vectors.vectors import WordVectors

SECTION_MARK = ":"
SYNTACTIC_MARK = "gram"
SEPARATORS = ("\t", ",", ";")
ENDINGS = (".txt", ".tsv", ".csv")
NO_TEST_SETS = ("license", "readme", "copying")

Question = tuple[str, str, str, str]
"""The words a, b, c and d of "a is to b as c is to d"."""
Sections = Mapping[str, Sequence[Question]]
"""Questions by section; sections named ``gram1-...`` are about grammar (Mikolov et al. 2013a, table 1)."""
JudgedPair = tuple[str, str, float]
"""Two words and their similarity as judged by people."""


@dataclass(frozen=True)
class WordTestSets:
    """The test sets of an evaluation, by name."""

    analogies: Mapping[str, Sections] = field(default_factory=dict)
    similarities: Mapping[str, Sequence[JudgedPair]] = field(default_factory=dict)


def read_test_sets(paths: Sequence[str]) -> WordTestSets:
    """The test sets in files, and in all .txt, .tsv and .csv files below folders.

    A file of analogies has lines ``: section`` and lines of four words. A file of pairs has two words and a number per line,
    separated by tabs, spaces, commas or semicolons, perhaps in quotes, and may begin with a heading. Raises DataError if a file
    is missing, a folder has none, two have the same name, or a line (named) has neither form.
    """
    files: list[Path] = []
    for path in (Path(text).expanduser() for text in paths):
        found = [path]
        if path.is_dir():
            sets = (
                file for file in path.rglob("*") if file.suffix in ENDINGS and file.stem.lower() not in NO_TEST_SETS
            )
            found = sorted(sets)
        if not found:
            raise DataError(f"{path}: no test sets in this folder; expected files that end in {', '.join(ENDINGS)}")
        files += found
    analogies: dict[str, Sections] = {}
    similarities: dict[str, Sequence[JudgedPair]] = {}
    for file in dict.fromkeys(file.resolve() for file in files):
        if file.stem in analogies | similarities:
            raise DataError(f"{file}: another test set is named {file.stem}; rename one")
        lines = [(number, line.strip()) for number, line in enumerate(read_lines(file), start=1) if line.strip()]
        if not lines:
            raise DataError(f"{file}: the file is empty; expected analogies or pairs of words")
        # Only pairs have a heading, which may have four words.
        first = [line for _, line in lines[:2]]
        has_four_words = len(first[-1].split()) == 4 and not any(separator in first[-1] for separator in SEPARATORS)
        if has_four_words or any(line.startswith(SECTION_MARK) for line in first):
            analogies[file.stem] = _sections(file, lines)
        else:
            similarities[file.stem] = _pairs(file, lines)
    return WordTestSets(analogies, similarities)


def _sections(path: Path, lines: Sequence[tuple[int, str]]) -> dict[str, list[Question]]:
    sections: dict[str, list[Question]] = {}
    name = path.stem
    for number, line in lines:
        if line.startswith(SECTION_MARK):
            name = line.removeprefix(SECTION_MARK).strip()
            continue
        words = line.split()
        if len(words) != 4:
            problem = f"{len(words)} words, expected four, or ': ' and the name of a section"
            raise DataError(f"{path}, line {number}: {problem}")
        a, b, c, d = words
        sections.setdefault(name, []).append((a, b, c, d))
    if not sections:
        raise DataError(f"{path}: no question; expected lines of four words")
    return sections


def _pairs(path: Path, lines: Sequence[tuple[int, str]]) -> list[JudgedPair]:
    """The pairs of the lines; the first may be a heading."""
    pairs = []
    for index, (number, line) in enumerate(lines):
        try:
            first, second, judged = (field.strip('"') for field in re.split(r"\s*[\t,;]\s*|\s+", line))
            if not (first and second and math.isfinite(float(judged))):
                raise ValueError
            pairs.append((first, second, float(judged)))
        except ValueError:
            if index > 0 or len(lines) == 1:
                raise DataError(f"{path}, line {number}: {line[:80]!r} is not two words and a number") from None
    return pairs


@dataclass(frozen=True)
class AnalogyScore:
    """``correct`` answers among ``covered`` questions, whose four words all have vectors, of ``total`` questions.

    ``accuracy``: correct divided by covered; None if no question is covered.
    """

    name: str
    correct: int
    covered: int
    total: int
    accuracy: float | None


@dataclass(frozen=True)
class AnalogyScores:
    """Scores on a set of analogies: by section, and summed over sections."""

    name: str
    sections: tuple[AnalogyScore, ...]
    semantic: AnalogyScore
    syntactic: AnalogyScore
    overall: AnalogyScore


@dataclass(frozen=True)
class SimilarityScore:
    """Spearman's rank correlation over ``covered`` of ``total`` pairs; None if undefined."""

    name: str
    spearman: float | None
    covered: int
    total: int


@dataclass(frozen=True)
class VectorReport:
    """The evaluation of a table ``[num_words, dimension]``."""

    num_words: int
    dimension: int
    analogies: tuple[AnalogyScores, ...]
    similarities: tuple[SimilarityScore, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def headline(self) -> dict[str, float]:
        """Metrics to log, without undefined ones.

        ``analogies``: accuracy over all sets, 0 to 1. ``spearman_NAME``: -1 to 1; ``similarity``: their mean. ``coverage``:
        covered share of questions and pairs.
        """
        overall = [each.overall for each in self.analogies]
        ranks = {f"spearman_{each.name}": each.spearman for each in self.similarities if each.spearman is not None}
        scores: list[AnalogyScore | SimilarityScore] = [*overall, *self.similarities]
        numbers = {
            "analogies": _summed("", overall).accuracy,
            "analogies_semantic": _summed("", [each.semantic for each in self.analogies]).accuracy,
            "analogies_syntactic": _summed("", [each.syntactic for each in self.analogies]).accuracy,
            "similarity": sum(ranks.values()) / len(ranks) if ranks else None,
            "coverage": sum(each.covered for each in scores) / max(sum(each.total for each in scores), 1),
        }
        return {name: number for name, number in numbers.items() if number is not None} | ranks

    def table(self) -> str:
        parts = [f"{self.num_words:,} words, {self.dimension} dimensions"]
        if self.analogies:
            rows = [("analogies", "accuracy", "correct", "covered", "coverage")]
            for scores in self.analogies:
                named = [(f"{scores.name}: {each.name}", each) for each in scores.sections]
                sums = (scores.semantic, scores.syntactic, scores.overall)
                for name, each in named + [(f"{scores.name}, {each.name}", each) for each in sums if each.total]:
                    accuracy = "-" if each.accuracy is None else f"{100 * each.accuracy:.2f} %"
                    rows.append((name, accuracy, f"{each.correct:,}", *_coverage(each)))
            parts.append(text_table(rows, "lrrrr"))
        if self.similarities:
            ranks = [("similarity", "Spearman", "covered", "coverage")]
            for score in self.similarities:
                rank = "-" if score.spearman is None else f"{score.spearman:.4f}"
                ranks.append((score.name, rank, *_coverage(score)))
            parts.append(text_table(ranks, "lrrr"))
        parts.append(
            "covered: all words have vectors, as written or in lower case; scores are over covered questions and pairs"
        )
        return "\n\n".join(parts)


def evaluate_vectors(vectors: WordVectors, test_sets: WordTestSets) -> VectorReport:
    """Answers the analogies by 3CosAdd, question words excluded, and ranks the pairs by cosine.

    Words of a test set are looked up as written, else in lower case.
    """
    analogies = tuple(_score_analogies(vectors, name, each) for name, each in test_sets.analogies.items())
    similarities = tuple(_score_similarity(vectors, name, each) for name, each in test_sets.similarities.items())
    return VectorReport(len(vectors), vectors.dimension, analogies, similarities)


def _score_analogies(vectors: WordVectors, name: str, sections: Sections) -> AnalogyScores:
    found = [(section, tuple(map(vectors.find, question))) for section, each in sections.items() for question in each]
    known = [(section, rows) for section, rows in found if None not in rows]
    rows = np.array([rows for _, rows in known], np.int64).reshape(-1, 4)
    asked = rows[:, :3]
    answers, _ = search(vectors.matrix, analogy_queries(vectors.matrix, asked), 1, asked)
    is_right = answers[:, 0] == rows[:, 3]
    correct = Counter(section for (section, _), right in zip(known, is_right, strict=True) if right)
    covered, total = Counter(section for section, _ in known), Counter(section for section, _ in found)
    scores = [_analogy_score(section, correct[section], covered[section], total[section]) for section in sections]
    semantic = [each for each in scores if not each.name.startswith(SYNTACTIC_MARK)]
    syntactic = [each for each in scores if each.name.startswith(SYNTACTIC_MARK)]
    sums = _summed("semantic", semantic), _summed("syntactic", syntactic), _summed("overall", scores)
    return AnalogyScores(name, tuple(scores), *sums)


def _score_similarity(vectors: WordVectors, name: str, pairs: Sequence[JudgedPair]) -> SimilarityScore:
    """Scores one set: cosines of the pairs against the ratings."""
    looked_up = [(vectors.find(word), vectors.find(other), judged) for word, other, judged in pairs]
    known = [(row, other, judged) for row, other, judged in looked_up if row is not None and other is not None]
    if not known:
        return SimilarityScore(name, None, 0, len(pairs))
    first, second, judged = zip(*known, strict=True)
    cosines = np.einsum("ND,ND->N", *(unit_rows(vectors.matrix[list(rows)]) for rows in (first, second)))
    return SimilarityScore(name, spearman(cosines, judged), len(known), len(pairs))


def spearman(values: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> float | None:
    """Rank correlation with mean ranks for ties; None for fewer than two pairs, or if all values of a side are equal."""
    if len(values) < 2 or len(set(map(float, values))) == 1 or len(set(map(float, others))) == 1:
        return None
    from scipy.stats import spearmanr

    found = float(spearmanr(values, others).statistic)
    return found if math.isfinite(found) else None


def _analogy_score(name: str, correct: int, covered: int, total: int) -> AnalogyScore:
    return AnalogyScore(name, correct, covered, total, correct / covered if covered else None)


def _summed(name: str, scores: Sequence[AnalogyScore]) -> AnalogyScore:
    counts = (sum(getattr(each, field) for each in scores) for field in ("correct", "covered", "total"))
    return _analogy_score(name, *counts)


def _coverage(score: AnalogyScore | SimilarityScore) -> tuple[str, str]:
    share = f"{100 * score.covered / score.total:.1f} %" if score.total else "-"
    return f"{score.covered:,} of {score.total:,}", share
