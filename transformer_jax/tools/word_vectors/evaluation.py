"""Test sets of word vectors (analogies and rated word pairs), and scores on them."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
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
    separated by tabs, spaces, commas or semicolons, and may begin with a heading. Raises DataError if a file is missing, a
    folder has none, two have the same name, or a line (named) has neither form.
    """
    files: list[Path] = []
    for path in (Path(text).expanduser() for text in paths):
        below = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS) if path.is_dir() else [path]
        if not below:
            raise DataError(f"{path}: no test sets in this folder; expected files that end in {', '.join(ENDINGS)}")
        files += [file for file in below if not path.is_dir() or file.stem.lower() not in NO_TEST_SETS]
    files = list(dict.fromkeys(file.resolve() for file in files))
    names = Counter(file.stem for file in files)
    for file in files:
        if names[file.stem] > 1:
            raise DataError(f"{file}: {names[file.stem]} test sets are named {file.stem}; rename all but one")
    analogies, similarities = {}, {}
    for file in files:
        found = _read_test_set(file)
        if isinstance(found, dict):
            analogies[file.stem] = found
        else:
            similarities[file.stem] = found
    return WordTestSets(analogies, similarities)


def _read_test_set(path: Path) -> dict[str, list[Question]] | list[JudgedPair]:
    lines = [(number, line.strip()) for number, line in enumerate(read_lines(path), start=1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: the file is empty; expected analogies or pairs of words")
    first = lines[0][1]
    has_four_words = len(first.split()) == 4 and not any(separator in first for separator in SEPARATORS)
    if not (first.startswith(SECTION_MARK) or has_four_words):
        return _pairs(path, lines)
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
    pairs = []
    for number, line in lines:
        pair = _judged_pair(line)
        if pair is not None:
            pairs.append(pair)
        elif number != lines[0][0] or len(lines) == 1:
            raise DataError(f"{path}, line {number}: {line[:80]!r} is not two words and a number")
    return pairs


def _judged_pair(line: str) -> JudgedPair | None:
    """The two words and the number on a line; None for another form."""
    try:
        first, second, number = re.split(r"\s*[\t,;]\s*|\s+", line)
        judged = float(number)
    except ValueError:
        return None
    return (first, second, judged) if first and second and math.isfinite(judged) else None


@dataclass(frozen=True)
class AnalogyScore:
    """``correct`` answers among ``covered`` questions, whose four words all have vectors, of ``total`` questions."""

    name: str
    correct: int
    covered: int
    total: int

    @property
    def accuracy(self) -> float | None:
        """Correct divided by covered; None if no question is covered."""
        return self.correct / self.covered if self.covered else None


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
        """Nested fields, with accuracies, for ``json.dumps``."""
        fields = asdict(self)
        for scores in fields["analogies"]:
            for score in (*scores["sections"], scores["semantic"], scores["syntactic"], scores["overall"]):
                score["accuracy"] = score["correct"] / score["covered"] if score["covered"] else None
        return fields

    def headline(self) -> dict[str, float]:
        """Metrics to log, without undefined ones.

        ``analogies``: accuracy over all sets, 0 to 1. ``spearman_NAME``: -1 to 1; ``similarity``: their mean. ``coverage``:
        covered share of questions and pairs.
        """
        kinds = {
            "analogies": [each.overall for each in self.analogies],
            "analogies_semantic": [each.semantic for each in self.analogies],
            "analogies_syntactic": [each.syntactic for each in self.analogies],
        }
        numbers = {name: _summed(name, scores).accuracy for name, scores in kinds.items()}
        ranks = [each.spearman for each in self.similarities if each.spearman is not None]
        scores: list[AnalogyScore | SimilarityScore] = [*kinds["analogies"], *self.similarities]
        numbers["similarity"] = sum(ranks) / len(ranks) if ranks else None
        numbers["coverage"] = sum(each.covered for each in scores) / max(sum(each.total for each in scores), 1)
        numbers |= {f"spearman_{each.name}": each.spearman for each in self.similarities}
        return {name: number for name, number in numbers.items() if number is not None}

    def table(self) -> str:
        """The report as aligned plain text."""
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
                ranks.append(
                    (score.name, "-" if score.spearman is None else f"{score.spearman:.4f}", *_coverage(score))
                )
            parts.append(text_table(ranks, "lrrr"))
        parts.append(
            "accuracy and Spearman are over covered questions and pairs: all their words have vectors, as written or in lower "
            "case"
        )
        return "\n\n".join(parts)


def evaluate_vectors(vectors: WordVectors, test_sets: WordTestSets) -> VectorReport:
    """Answers the analogies by 3CosAdd, question words excluded, and ranks the pairs by cosine.

    Words of a test set are looked up as written, else in lower case. Raises DataError if there are no test sets.
    """
    if not (test_sets.analogies or test_sets.similarities):
        raise DataError("word vectors: no test set to evaluate on; give a file of analogies or of rated pairs")
    analogies = tuple(_score_analogies(vectors, name, each) for name, each in test_sets.analogies.items())
    similarities = tuple(_score_similarity(vectors, name, each) for name, each in test_sets.similarities.items())
    return VectorReport(len(vectors), vectors.dimension, analogies, similarities)


def _score_analogies(vectors: WordVectors, name: str, sections: Sections) -> AnalogyScores:
    """Scores one set, with one search for all questions."""
    found = [[tuple(map(vectors.find, question)) for question in questions] for questions in sections.values()]
    known = [[rows for rows in section if None not in rows] for section in found]
    rows = np.array(list(chain.from_iterable(known)), np.int64).reshape(-1, 4)
    correct = np.zeros(len(rows), bool)
    if len(rows):
        asked = rows[:, :3]
        answers = search(vectors.matrix, analogy_queries(vectors.matrix, asked), 1, asked).rows[:, 0]
        correct = answers == rows[:, 3]
    hits = np.split(correct, np.cumsum([len(each) for each in known])[:-1])
    scores = [
        AnalogyScore(section, int(right.sum()), len(covered), len(questions))
        for (section, questions), covered, right in zip(sections.items(), known, hits, strict=True)
    ]
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


def _summed(name: str, scores: Sequence[AnalogyScore]) -> AnalogyScore:
    return AnalogyScore(
        name,
        sum(each.correct for each in scores),
        sum(each.covered for each in scores),
        sum(each.total for each in scores),
    )


def _coverage(score: AnalogyScore | SimilarityScore) -> tuple[str, str]:
    share = f"{100 * score.covered / score.total:.1f} %" if score.total else "-"
    return f"{score.covered:,} of {score.total:,}", share
