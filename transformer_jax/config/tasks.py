"""Tasks by name: their settings dataclasses and metrics, and the classes that implement them, imported on first use."""

import pkgutil
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from transformer_jax.config.data import BatchingConfig, DataConfig
from transformer_jax.config.evaluation import Metric, metrics_of_plugins
from transformer_jax.config.language_model import (
    DecoderOnlyConfig,
    GenerationConfig,
    TextBatchingConfig,
    TextDataConfig,
    check_language_model,
)
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.config.plugins import register, registered
from transformer_jax.config.translation import DecodingConfig, check_translation


class TaskSettings(NamedTuple):
    """The facts of a task that need no JAX.

    ``data``, ``batching``, ``decoding``: settings dataclasses; ``model``: settings dataclasses by ``model.kind``, the default
    first. ``selection``: the metric that selects checkpoints, ends runs without improvement, and is optimized by sweeps unless
    they name one of ``others``. ``check``: called with the blocks data, tokenizer, batching, model and decoding, raises
    ConfigError when they are incompatible. ``implementation``: the subclass of ``tasks.task.Task``, or its ``"module:Class"``.
    """

    data: type
    batching: type
    model: Mapping[str, type]
    decoding: type
    selection: Metric
    others: tuple[Metric, ...]
    check: Callable[..., None]
    implementation: str | type = ""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All metrics of the task; validations of a run measure ``ExperimentConfig.metrics``."""
        return (self.selection, *self.others, *(metrics_of_plugins() if self.scores_translations else ()))

    @property
    def scores_translations(self) -> bool:
        """Whether the task selects by BLEU, so that ``evaluation`` chooses its scores."""
        return self.selection.name == "bleu"


LOSSES = (
    Metric("loss", "minimize", defined_by=("tokenizer",)),
    Metric("perplexity", "minimize", digits=3, defined_by=("tokenizer",)),
)

register("task", "translation")(
    TaskSettings(
        DataConfig,
        BatchingConfig,
        {"transformer": TransformerConfig, "rnn": RnnConfig},
        DecodingConfig,
        Metric("bleu", "maximize", "BLEU", digits=2),
        (
            Metric("chrf", "maximize", "chrF", digits=2),
            Metric("bleu_lowercase", "maximize", "BLEU lower-case", digits=2),
            Metric("bleu_compounds", "maximize", "BLEU compounds", digits=2),
            Metric("bleu_moses", "maximize", "BLEU Moses", digits=2),
            Metric("ter", "minimize", "TER", digits=2),
            Metric("spbleu", "maximize", "spBLEU", digits=2),
            *LOSSES,
        ),
        check_translation,
        "transformer_jax.tasks.translation.task:TranslationTask",
    )
)
register("task", "language_model")(
    TaskSettings(
        TextDataConfig,
        TextBatchingConfig,
        {"decoder_only": DecoderOnlyConfig},
        GenerationConfig,
        Metric("bits_per_byte", "minimize"),
        LOSSES,
        check_language_model,
        "transformer_jax.tasks.language_model.task:LanguageModelTask",
    )
)


def _settings_of(task: Any) -> TaskSettings:
    """The settings of a registered task class, or of registered settings that name their class."""
    return task if isinstance(task, TaskSettings) else task.settings._replace(implementation=task)


TASKS: Mapping[str, TaskSettings] = registered("task", _settings_of)
DEFAULT_TASK = "translation"
BLOCKS_OF_TASKS = ("data", "batching", "model", "decoding")


imported = pkgutil.resolve_name
"""The object named by ``"module:NAME"``."""


def kinds_of(task: str, block: str) -> Mapping[str, type]:
    """The settings dataclasses of a block of this task by ``kind``, or under an empty name if there is only one."""
    found = getattr(TASKS[task], block)
    return found if isinstance(found, Mapping) else {"": found}


def any_kind_of(block: str) -> Any:
    """The union of the settings dataclasses of a block over all tasks."""
    kinds = [kind for task in TASKS for kind in kinds_of(task, block).values()]
    return reduce(or_, dict.fromkeys(kinds))
