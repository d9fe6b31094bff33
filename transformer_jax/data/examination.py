"""Examination of texts before they are used, by a tool: swapped sides, shifted lines, and more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.registry.index import behind


def warnings_on_run(config: ExperimentConfig, *, only_training: bool = False) -> list[str]:
    """Examine the training text of a run and, unless ``only_training``, the other splits.

    Returns warnings. Raises DataError at a serious fault: always of the training text, of others
    unless ``data.faults`` is ``warn``.
    """
    return _examined("run", config, only_training=only_training)


def warnings_on_split(config: ExperimentConfig, split: str) -> list[str]:
    """Examine a split that is scored, as ``warnings_on_run`` does."""
    return _examined("split", config, split)


def warnings_on_pairs(config: ExperimentConfig, files: Sequence[str], pairs: Sequence[SentencePair]) -> list[str]:
    """Examine two files of a user, sources and their translations."""
    return _examined("pairs", config, files, pairs)


def warnings_on_files(
    config: ExperimentConfig, files: Sequence[str], sources: Sequence[str], targets: Sequence[str]
) -> list[str]:
    """Examine two files as ``warnings_on_pairs`` does, and only warn of serious faults.

    Returns none if the numbers of lines differ, which is an error elsewhere.
    """
    if len(sources) != len(targets):
        return []
    config = replace(config, data=replace(config.data, faults="warn"))
    return warnings_on_pairs(config, files, [*map(SentencePair, sources, targets)])


def _examined(text: str, *arguments: Any, **options: Any) -> list[str]:
    examine = behind("examine_texts").get(text)
    return examine(*arguments, **options) if examine else []
