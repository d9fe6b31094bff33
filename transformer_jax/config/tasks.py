"""Tasks by name: settings dataclasses and metrics, and the classes that train and evaluate, which are imported on first use."""

import importlib
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from transformer_jax.config.data import BatchingConfig, DataConfig
from transformer_jax.config.evaluation import Metric
from transformer_jax.config.language_model import (
    DecoderOnlyConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
    check_language_model,
)
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.plugins import WithRegistered
from transformer_jax.config.translation import DecodingConfig, check_translation


class TaskSettings(NamedTuple):
    """What is known of a task before JAX starts.

    ``data``, ``batching``, ``decoding``: its settings dataclasses; ``model``: those by ``model.kind``, the default first.
    ``selection`` selects checkpoints, ends runs that no longer improve, and is what sweeps optimize by default; ``others`` can
    be optimized too. ``check`` takes the blocks data, tokenizer, batching, model and decoding, and raises ConfigError when they
    exclude each other. ``implementation``: the subclass of ``tasks.task.Task``, or its ``"module:Class"``; ``sizing``: the
    ``"module:NAME"`` of its ``tasks.sizing.Sizing``, if ``--budget`` can size its runs.
    """

    data: type
    batching: type
    model: Mapping[str, type]
    decoding: type
    selection: Metric
    others: tuple[Metric, ...]
    check: Callable[..., None]
    implementation: str | type = ""
    sizing: str = ""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that the task has; ``ExperimentConfig.metrics`` are those that validations of a run measure."""
        return (self.selection, *self.others)


LOSSES = (
    Metric("loss", "minimize", is_independent_of_tokenizer=False),
    Metric("perplexity", "minimize", digits=3, is_independent_of_tokenizer=False),
)

OWN_TASKS = {
    "translation": TaskSettings(
        DataConfig,
        BatchingConfig,
        {"transformer": TransformerConfig, "rnn": RnnConfig},
        DecodingConfig,
        Metric("bleu", "maximize", "BLEU", digits=2),
        (
            Metric("chrf", "maximize", "chrF", digits=2),
            Metric("bleu_lowercase", "maximize", "BLEU lower-case", digits=2),
            Metric("bleu_compounds", "maximize", "BLEU compounds", digits=2),
            Metric("ter", "minimize", "TER", digits=2),
            Metric("spbleu", "maximize", "spBLEU", digits=2),
            *LOSSES,
        ),
        check_translation,
        "transformer_jax.tasks.translation.task:TranslationTask",
        "transformer_jax.tasks.sizing:TRANSLATION",
    ),
    "language_model": TaskSettings(
        TextDataConfig,
        TextBatchingConfig,
        {"decoder_only": DecoderOnlyConfig},
        GenerationConfig,
        Metric("bits_per_byte", "minimize"),
        LOSSES,
        check_language_model,
        "transformer_jax.tasks.language_model.task:LanguageModelTask",
        "transformer_jax.tasks.sizing:LANGUAGE_MODEL",
    ),
}


def _settings_of(registered: Any) -> TaskSettings:
    """Of what was registered: a class with ``settings``, or settings that name their class."""
    if isinstance(registered, TaskSettings):
        return registered
    return registered.settings._replace(implementation=registered)


TASKS: Mapping[str, TaskSettings] = WithRegistered(OWN_TASKS, "task", _settings_of)
DEFAULT_TASK = "translation"
BLOCKS_OF_TASKS = ("data", "batching", "model", "decoding")


def imported(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def kinds_of(task: str, block: str) -> Mapping[str, type]:
    """The settings dataclasses that a block of this task may be, by ``kind``; under an empty name where there is one."""
    found = getattr(TASKS[task], block)
    return found if isinstance(found, Mapping) else {"": found}


def any_kind_of(block: str) -> Any:
    """The union of the settings dataclasses that a block may be in any task."""
    kinds = [kind for task in TASKS for kind in kinds_of(task, block).values()]
    return reduce(or_, dict.fromkeys(kinds))
