"""Sizing of translation runs: the corpus measured, and the plan and the vocabulary for it."""

import itertools
from collections.abc import Mapping
from typing import Any

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.sizing import SIZED, Corpus, plan_of
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import CorpusSample, sample_of
from transformer_jax.data.vocabulary_choice import CHOSEN, vocabulary_of
from transformer_jax.tasks.protocol import Planned

SAMPLED_PAIRS = 10_000
SIZED_TRANSLATION = (*SIZED, *CHOSEN)
"""The settings that are chosen."""


def plan_translation(config: ExperimentConfig, seconds: float, flops: float, stated: Mapping[str, Any]) -> Planned:
    """The plan of ``config.sizing`` for the corpus of a run, and its vocabulary."""
    corpus, sample = _measured(config), _sample(config)
    plan = plan_of(corpus, seconds, flops, stated)
    vocabulary = vocabulary_of(sample.source, sample.target, config.tokenizer.kind, plan.size.vocabulary, stated)
    plan = plan_of(corpus, seconds, flops, {**vocabulary.settings, **stated})
    return Planned(
        {**plan.settings(), **vocabulary.settings}, plan.seconds, f"{plan.text(corpus)}\n{vocabulary.sentence}"
    )


def _sample(config: ExperimentConfig) -> CorpusSample:
    corpus, split = open_corpus(config.data, config.data_seed), config.data.train_split
    return sample_of(corpus.pairs(split), corpus.count(split))


def _measured(config: ExperimentConfig) -> Corpus:
    """Counted pairs, and the mean length of the first ones."""
    source = open_corpus(config.data, config.data_seed)
    split = config.data.train_split
    words = [
        max(len(pair.source.split()), len(pair.target.split()))
        for pair in itertools.islice(source.pairs(split), SAMPLED_PAIRS)
    ]
    return Corpus(max(source.count(split), 1), sum(words) / max(len(words), 1))
