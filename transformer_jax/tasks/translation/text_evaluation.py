"""Translation of any text and its scores against references, beside the splits of the data."""

from collections.abc import Sequence

from transformer_jax.data.sentence_pairs import SentencePair, digest
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.trained_run import TrainedRun


def evaluate_text(
    trained: TrainedRun, sources: Sequence[str], references: Sequence[Sequence[str]], name: str
) -> TranslationEvaluation:
    """Translations of ``sources`` with their scores against one or several references of each; perplexity is of the first.

    The result is called ``text-NAME-DIGEST``, so that it is neither a split nor another text of that name.
    """
    scored = trained.scorer.score(trained.params, sources, references[0])
    nll, tokens = -sum(each.log_prob for each in scored), sum(len(each.pieces) for each in scored)
    pairs = [SentencePair(*pair) for pair in zip(sources, references[0], strict=True)]
    called = f"text-{name}-{digest([*sources, *(line for lines in references for line in lines)])[:8]}"
    found = trained.evaluator.translated(trained.params, called, pairs, references, nll, tokens)
    return found._replace(references=references)
