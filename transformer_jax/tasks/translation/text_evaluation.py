"""Translation of any text and its scores against references, beside the splits of the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.sentence_pairs import SentencePair, digest
from transformer_jax.data.text_files import read_lines
from transformer_jax.evaluation.token_scores import TokenScores
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.trained_run import TrainedRun


class ReferencedText(NamedTuple):
    """Sentences, and one or several lists of their translations."""

    sources: list[str]
    references: list[list[str]]


def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> ReferencedText:
    """The lines of a file and of its references; raises ConfigError without them, DataError where they do not fit."""
    del config
    if not references:
        raise ConfigError("--references: --source and --references belong together; give both")
    sources, *translations = (list(read_lines(Path(name))) for name in (source, *references))
    for name, lines in zip(references, translations, strict=True):
        if len(lines) != len(sources) or not sources:
            raise DataError(f"{name}: {len(lines)} lines but {len(sources)} sources; line i is for sentence i")
    return ReferencedText(sources, translations)


def score_texts(trained: TrainedRun, sources: Sequence[str], targets: Sequence[str] | None) -> list[TokenScores]:
    """The log-probabilities of given translations."""
    return trained.scorer.score(trained.params, sources, targets or ())


def evaluate_text(trained: TrainedRun, text: ReferencedText, name: str) -> TranslationEvaluation:
    """Translations of a text with their scores against its references; perplexity is of the first.

    The result is called ``text-NAME-DIGEST``, so that it is neither a split nor another text of that name.
    """
    sources, references = text
    scored = trained.scorer.score(trained.params, sources, references[0])
    nll, tokens = -sum(each.log_prob for each in scored), sum(len(each.pieces) for each in scored)
    pairs = [SentencePair(*pair) for pair in zip(sources, references[0], strict=True)]
    called = f"text-{name}-{digest([*sources, *(line for lines in references for line in lines)])[:8]}"
    found = trained.evaluator.translated(trained.params, called, pairs, references, nll, tokens)
    return found._replace(references=references)
