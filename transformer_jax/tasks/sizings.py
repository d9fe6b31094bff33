"""How ``--budget`` sizes the runs of each task. Nothing here imports JAX: a mistake is found before that."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.sizing import (
    LANGUAGE_MODEL_KEYS,
    TRANSLATION_KEYS,
    WORD_VECTOR_KEYS,
    Corpus,
    Plan,
    plan_language_model,
    plan_translation,
    plan_word_vectors,
)
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import CorpusSample, sample_of, vocabulary_of
from transformer_jax.data.documents import measure_text


class Sizing(NamedTuple):
    """How ``--budget`` sizes the runs of a task.

    ``recipe`` states no sizes, ``keys`` are the settings that are chosen, ``models`` the kinds that can be. ``plan`` takes
    settings, the seconds, the floating-point operations per second of this machine, and what is stated and stays.
    """

    recipe: str
    keys: tuple[str, ...]
    models: tuple[str, ...]
    plan: Callable[[ExperimentConfig, float, float, Mapping[str, Any]], Plan]


SAMPLED_PAIRS = 10_000
OF_PACKED_ROWS = ("batching.count", "batching.packed_length")
SIZED_TRANSLATION = (*TRANSLATION_KEYS, "tokenizer.joint", "tokenizer.character_coverage", "model.tying")
"""The settings that are chosen."""


def plan_with_vocabulary(config: ExperimentConfig, seconds: float, flops: float, stated: Mapping[str, Any]) -> Plan:
    """The plan of ``config.sizing`` for the corpus of a run, and its vocabulary."""
    corpus, sample = _measured(config), _sample(config)

    plan = plan_translation(corpus, seconds, flops, stated)
    wanted = plan.settings["tokenizer.vocabulary_size"]
    vocabulary = vocabulary_of(sample.source, sample.target, config.tokenizer.kind, wanted, stated)
    plan = plan_translation(corpus, seconds, flops, {**vocabulary.settings, **stated})
    settings = {**plan.settings, **vocabulary.settings}
    if stated.get("batching.kind", "packed") != "packed":
        settings = {key: value for key, value in settings.items() if key not in OF_PACKED_ROWS}
    return Plan(settings, plan.seconds, f"{plan.sentence}\n{vocabulary.sentence}")


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


def _plans_text(plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """The ``plan`` of a ``Sizing`` for plain text, from one of ``config.sizing``."""

    def planned(config: ExperimentConfig, seconds: float, flops: float, stated: Mapping[str, Any]) -> Plan:
        return plan(measure_text(config.data, config.data_seed), seconds, flops, stated)

    return planned


SIZINGS = {
    "translation": Sizing("text", SIZED_TRANSLATION, ("transformer",), plan_with_vocabulary),
    "language_model": Sizing(
        "language_model:text", LANGUAGE_MODEL_KEYS, ("decoder_only",), _plans_text(plan_language_model)
    ),
    "word_vectors": Sizing(
        "word_vectors:text", WORD_VECTOR_KEYS, ("skip_gram", "cbow"), _plans_text(plan_word_vectors)
    ),
}
"""By task; a task of a plugin has none."""
