"""The scores of a run: what its settings leave open is found once, when it begins."""

import sys
from dataclasses import asdict, replace

from transformer_jax.config import ExperimentConfig, load_run_config
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.data.corpora import with_languages
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.distributed import from_first, say


def with_evaluation(config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
    """The settings with the languages of the text, the tokenizer of BLEU and the metric that selects.

    They are stated, or those with which the run in ``directory`` began, or found. Raises ConfigError when a tokenizer is not
    installed.
    """
    if not config.scores_translations:
        return config
    config, remark = with_languages(config)
    language = config.data.target_language
    found = EvaluationConfig(**from_first(lambda: asdict(_found(config.evaluation, language, directory))))
    found.require_installed(language, config.training.validation_metrics)
    if remark:
        say(remark, file=sys.stderr)
    if found != config.evaluation and (found.bleu_tokenizer, found.selection) != ("13a", "bleu"):
        chosen = f"BLEU is tokenized by {found.bleu_tokenizer}, checkpoints are selected by {found.selection}"
        say(
            f"data.target_language={language}: {chosen} (evaluation.bleu_tokenizer, evaluation.selection)",
            file=sys.stderr,
        )
    return replace(config, evaluation=found)


def _found(asked: EvaluationConfig, language: str, directory: RunDirectory) -> EvaluationConfig:
    if not directory.has_checkpoints():
        return asked.resolved(language)
    saved = load_run_config(directory.path)
    begun = saved.evaluation.resolved(saved.data.target_language)
    tokenizer = asked.bleu_tokenizer or begun.bleu_tokenizer
    if tokenizer != begun.bleu_tokenizer:
        before = f"BLEU was tokenized by {begun.bleu_tokenizer}, from now on by {tokenizer}"
        say(f"evaluation.bleu_tokenizer: {before}; values before and after do not compare", file=sys.stderr)
    return replace(asked, bleu_tokenizer=tokenizer, selection=begun.selection)
