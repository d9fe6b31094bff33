"""Sizing of translation runs: the corpus measured, and the plan for it."""

import itertools
from collections.abc import Mapping
from typing import Any

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.sizing import Corpus, plan_of
from transformer_jax.data.corpora import open_corpus
from transformer_jax.tasks.protocol import Planned

SAMPLED_PAIRS = 10_000


def plan_translation(config: ExperimentConfig, seconds: float, flops: float, stated: Mapping[str, Any]) -> Planned:
    """The plan of ``config.sizing`` for the corpus of a run."""
    corpus = _measured(config)
    plan = plan_of(corpus, seconds, flops, stated)
    return Planned(plan.settings(), plan.seconds, plan.text(corpus))


def _measured(config: ExperimentConfig) -> Corpus:
    """Counted pairs, and the mean length of the first ones."""
    source = open_corpus(config.data, config.data_seed)
    split = config.data.train_split
    words = [
        max(len(pair.source.split()), len(pair.target.split()))
        for pair in itertools.islice(source.pairs(split), SAMPLED_PAIRS)
    ]
    return Corpus(max(source.count(split), 1), sum(words) / max(len(words), 1))
