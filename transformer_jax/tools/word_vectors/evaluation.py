"""How good word vectors are: analogies answered, and similarities ranked as people rank them. In training and by command."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from transformer_jax.config.errors import DataError
from transformer_jax.evaluation.text_table import aligned_table
from transformer_jax.tools.word_vectors.neighbors import analogy_queries, search, unit_rows
from transformer_jax.tools.word_vectors.test_sets import AnalogySection, AnalogySet, SimilaritySet, WordTestSets
from transformer_jax.tools.word_vectors.vectors import WordVectors


@dataclass(frozen=True)
class AnalogyScore:
    """Of ``total`` questions those ``covered``, all of whose four words have vectors, and of these the ``correct`` ones."""

    name: str
    correct: int
    covered: int
    total: int

    @property
    def accuracy(self) -> float | None:
        """Correct among covered, 0 to 1; None where nothing is covered."""
        return self.correct / self.covered if self.covered else None


@dataclass(frozen=True)
class AnalogyScores:
    """A set of analogies: each section, and sums over them."""

    name: str
    sections: tuple[AnalogyScore, ...]
    semantic: AnalogyScore
    syntactic: AnalogyScore
    overall: AnalogyScore


@dataclass(frozen=True)
class SimilarityScore:
    """Spearman's rank correlation over the ``covered`` of ``total`` pairs; None where it is not defined."""

    name: str
    spearman: float | None
    covered: int
    total: int


@dataclass(frozen=True)
class VectorReport:
    """One evaluation of a table ``[num_words, dimension]``, of which only the first ``limit`` words count, 0 for all."""

    num_words: int
    dimension: int
    limit: int
    analogies: tuple[AnalogyScores, ...]
    similarities: tuple[SimilarityScore, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields, nested as they are, and accuracies, as what ``json.dumps`` takes."""
        fields = asdict(self)
        for scores in fields["analogies"]:
            for score in (*scores["sections"], scores["semantic"], scores["syntactic"], scores["overall"]):
                score["accuracy"] = score["correct"] / score["covered"] if score["covered"] else None
        return fields

    def headline(self) -> dict[str, float]:
        """The numbers that belong into a log, those defined: ``analogies`` over all sets, from 0 to 1; ``spearman_NAME``, from
        -1 to 1, and their mean, ``similarity``; ``coverage``, the share of questions and pairs that is covered.
        """
        kinds = {
            "analogies": [each.overall for each in self.analogies],
            "analogies_semantic": [each.semantic for each in self.analogies],
            "analogies_syntactic": [each.syntactic for each in self.analogies],
        }
        numbers = {name: _summed(name, scores).accuracy for name, scores in kinds.items()}
        ranks = [each.spearman for each in self.similarities if each.spearman is not None]
        scores: list[AnalogyScore | SimilarityScore] = [each.overall for each in self.analogies]
        scores += self.similarities
        numbers["similarity"] = sum(ranks) / len(ranks) if ranks else None
        numbers["coverage"] = sum(each.covered for each in scores) / max(sum(each.total for each in scores), 1)
        numbers |= {f"spearman_{each.name}": each.spearman for each in self.similarities}
        return {name: number for name, number in numbers.items() if number is not None}

    def table(self) -> str:
        """The report as aligned plain text."""
        limit = f", the first {self.limit:,} of them" if 0 < self.limit < self.num_words else ""
        parts = [f"{self.num_words:,} words, {self.dimension} dimensions{limit}"]
        if self.analogies:
            rows = [("analogies", "accuracy", "correct", "covered", "coverage")]
            for scores in self.analogies:
                rows += [_analogy_row(f"{scores.name}: {each.name}", each) for each in scores.sections]
                sums = (scores.semantic, scores.syntactic, scores.overall)
                rows += [_analogy_row(f"{scores.name}, {each.name}", each) for each in sums if each.total]
            parts.append(aligned_table(rows, "lrrrr"))
        if self.similarities:
            heading = ("similarity", "Spearman", "covered", "coverage")
            parts.append(aligned_table([heading, *map(_similarity_row, self.similarities)], "lrrr"))
        parts.append(
            "accuracy and Spearman are over what is covered: every word of it has a vector, as written or in lower case"
        )
        return "\n\n".join(parts)


def evaluate_vectors(vectors: WordVectors, test_sets: WordTestSets, *, limit: int = 0) -> VectorReport:
    """Answers the analogies by 3CosAdd, question words excluded, and ranks the pairs by cosine.

    ``limit``: only the first so many words of the table have vectors, in questions and as answers; 0 for all. The words of
    a test set are looked up as written, else in lower case. Raises DataError when there are no test sets.
    """
    if not (test_sets.analogies or test_sets.similarities):
        raise DataError(
            "word vectors: there is no test set to evaluate on; give a file of analogies or of judged pairs"
        )
    table = vectors.first(limit)
    analogies = tuple(score_analogies(table, each) for each in test_sets.analogies)
    similarities = tuple(score_similarity(table, each) for each in test_sets.similarities)
    return VectorReport(len(vectors), vectors.dimension, limit, analogies, similarities)


def score_analogies(vectors: WordVectors, test_set: AnalogySet) -> AnalogyScores:
    """One set; all its questions are searched at once."""
    known = [_known_questions(vectors, section) for section in test_set.sections]
    rows = np.array(list(chain.from_iterable(known)), np.int64).reshape(-1, 4)
    correct = np.zeros(len(rows), bool)
    if len(rows):
        asked = rows[:, :3]
        answers = search(vectors.matrix, analogy_queries(vectors.matrix, asked), 1, asked).rows[:, 0]
        correct = answers == rows[:, 3]
    ends = np.cumsum([len(each) for each in known])
    right = [int(part.sum()) for part in np.split(correct, ends[:-1])]
    scores = [
        AnalogyScore(section.name, hits, len(covered), len(section.questions))
        for section, covered, hits in zip(test_set.sections, known, right, strict=True)
    ]
    of_grammar = [section.is_syntactic for section in test_set.sections]
    semantic = [score for score, is_syntactic in zip(scores, of_grammar, strict=True) if not is_syntactic]
    syntactic = [score for score, is_syntactic in zip(scores, of_grammar, strict=True) if is_syntactic]
    sums = _summed("semantic", semantic), _summed("syntactic", syntactic), _summed("overall", scores)
    return AnalogyScores(test_set.name, tuple(scores), *sums)


def score_similarity(vectors: WordVectors, test_set: SimilaritySet) -> SimilarityScore:
    """One set: cosines of the pairs against the judgments."""
    looked_up = [(vectors.find(word), vectors.find(other), judged) for word, other, judged in test_set.pairs]
    known = [(row, other, judged) for row, other, judged in looked_up if row is not None and other is not None]
    if not known:
        return SimilarityScore(test_set.name, None, 0, len(test_set.pairs))
    first, second, judged = zip(*known, strict=True)
    cosines = np.einsum("ND,ND->N", *(unit_rows(vectors.matrix[list(rows)]) for rows in (first, second)))
    return SimilarityScore(test_set.name, spearman(cosines, judged), len(known), len(test_set.pairs))


def spearman(values: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> float | None:
    """Rank correlation with mean ranks for ties; None for less than two pairs, or where one side has one value only."""
    if len(values) < 2 or len(set(map(float, values))) == 1 or len(set(map(float, others))) == 1:
        return None
    from scipy.stats import spearmanr

    found = float(spearmanr(values, others).statistic)
    return found if math.isfinite(found) else None


def _known_questions(vectors: WordVectors, section: AnalogySection) -> list[tuple[int, ...]]:
    """The rows of the questions all of whose words have vectors."""
    found = (tuple(map(vectors.find, question)) for question in section.questions)
    return [tuple(row for row in rows if row is not None) for rows in found if None not in rows]


def _summed(name: str, scores: Sequence[AnalogyScore]) -> AnalogyScore:
    return AnalogyScore(
        name,
        sum(each.correct for each in scores),
        sum(each.covered for each in scores),
        sum(each.total for each in scores),
    )


def _analogy_row(name: str, score: AnalogyScore) -> tuple[str, str, str, str, str]:
    accuracy = "-" if score.accuracy is None else f"{100 * score.accuracy:.2f} %"
    return (
        name,
        accuracy,
        f"{score.correct:,}",
        f"{score.covered:,} of {score.total:,}",
        _coverage(score.covered, score.total),
    )


def _similarity_row(score: SimilarityScore) -> tuple[str, ...]:
    rank = "-" if score.spearman is None else f"{score.spearman:.4f}"
    return score.name, rank, f"{score.covered:,} of {score.total:,}", _coverage(score.covered, score.total)


def _coverage(covered: int, total: int) -> str:
    return f"{100 * covered / total:.1f} %" if total else "-"
