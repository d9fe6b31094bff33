"""Translation of any text and its scores against references, beside the splits of the data."""

from collections.abc import Sequence

from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.trained_run import TrainedRun


def evaluate_text(
    trained: TrainedRun, sources: Sequence[str], references: Sequence[Sequence[str]], name: str
) -> TranslationEvaluation:
    """Translations of ``sources`` with their scores against one or several references of each; perplexity is of the first."""
    scored = trained.scorer.score(trained.params, sources, references[0])
    nll, tokens = -sum(each.log_prob for each in scored), sum(len(each.pieces) for each in scored)
    pairs = [SentencePair(*pair) for pair in zip(sources, references[0], strict=True)]
    return trained.evaluator.translated(trained.params, name, pairs, references, nll, tokens)
