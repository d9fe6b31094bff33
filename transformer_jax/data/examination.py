"""Examination of texts before they are used, by a tool: swapped sides, shifted lines, and more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformer_jax.config import ExperimentConfig
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.registry.index import behind


def examined(text: str, *arguments: Any, **options: Any) -> list[str]:
    """Return warnings on a ``text`` of the given kind, none without a tool that examines it.

    ``run``, of settings: the training text and, unless ``only_training``, the other splits.
    ``split``, of settings and a name: a split that is scored. ``pairs``, of settings, the names of
    two files and their pairs: files of a user. Raises DataError at a serious fault: always of the
    training text, of others unless ``data.faults`` is ``warn``.
    """
    examine = behind("examine_texts").get(text)
    return examine(*arguments, **options) if examine else []


def warnings_on_files(
    config: ExperimentConfig, files: Sequence[str], sources: Sequence[str], targets: Sequence[str]
) -> list[str]:
    """Return warnings on two files, also of serious faults.

    None if the numbers of lines differ, which is an error elsewhere.
    """
    if len(sources) != len(targets):
        return []
    config = replace(config, data=replace(config.data, faults="warn"))
    return examined("pairs", config, files, [*map(SentencePair, sources, targets)])
