"""Translation of any text and its scores against references, beside the splits of the data."""

import time
from collections.abc import Sequence

from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.evaluation.report import EvaluationReport, perplexity
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation
from transformer_jax.tasks.translation.pair_scores import score_pairs
from transformer_jax.tasks.translation.trained_run import TrainedRun


def evaluate_text(
    trained: TrainedRun, sources: Sequence[str], references: Sequence[Sequence[str]], name: str
) -> TranslationEvaluation:
    """Translations of ``sources`` with their scores against one or several references of each; perplexity is of the first."""
    started = time.perf_counter()
    translations = [best[0] for best in trained.translator.translate(trained.params, sources)]
    seconds = time.perf_counter() - started
    hypotheses = [translation.text for translation in translations]
    scored = score_pairs(trained, sources, references[0])
    nll, tokens = -sum(each.log_prob for each in scored), sum(len(each.pieces) for each in scored)
    report = EvaluationReport(
        split=name,
        scores=score_translations(hypotheses, references),
        loss=nll / tokens,
        perplexity=perplexity(nll, tokens),
        tokens_per_second=sum(len(translation.token_ids) for translation in translations) / seconds,
        num_sentences=len(sources),
        decoding=trained.config.decoding,
    )
    pairs = [SentencePair(*pair) for pair in zip(sources, references[0], strict=True)]
    return TranslationEvaluation(report, hypotheses, pairs)
