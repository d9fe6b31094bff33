"""The settings of one run, the checks over several blocks, and what follows from them: hyperparameters, changes on resume."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

from transformer_jax.config.checks import LARGEST_SEED, check_settings, declared, require, require_choice, setting
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.evaluation import SCORES, EvaluationConfig, Metric, score_names
from transformer_jax.config.languages import UNDETERMINED
from transformer_jax.config.model import InitConfig, TransformerConfig
from transformer_jax.config.optimization import (
    ENDLESS_SCHEDULES,
    MeshConfig,
    OptimizerConfig,
    TrainingConfig,
    require_rows_divide,
)
from transformer_jax.config.parts import Parts, Selection, complete_parts, selections, settings_with
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, OWN_TASKS, TASKS, kinds_of
from transformer_jax.config.translation import DecodingConfig

TaskBlock = Any
"""A settings dataclass that ``TASKS[task]`` names."""


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run. The types of ``data``, ``batching``, ``model`` and ``decoding`` depend on its ``task``.

    ``parts``: the settings of all parts that others select; those left out get their defaults.
    """

    task: str = setting(DEFAULT_TASK, "Task to train.", choices=tuple(OWN_TASKS), plugin="task")
    seed: int = setting(
        0,
        "Seed of parameters and dropout, and of the data unless data.seed is set.",
        at_least=0,
        at_most=LARGEST_SEED,
    )
    data: TaskBlock = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    batching: TaskBlock = field(default_factory=BatchingConfig)
    model: TaskBlock = field(default_factory=TransformerConfig)
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: TaskBlock = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        check_settings("", self)
        object.__setattr__(self, "parts", complete_parts(self.parts, self.selections))
        for name in BLOCKS_OF_TASKS:
            block, kinds = getattr(self, name), kinds_of(self.task, name).values()
            problem = f"{type(block).__name__} is not one of {', '.join(k.__name__ for k in kinds)}, task={self.task}"
            require(type(block) in kinds, name, problem)
        if self.evaluation.selection:
            names = tuple(metric.name for metric in TASKS[self.task].metrics)
            require_choice("evaluation.selection", self.evaluation.selection, names)
        TASKS[self.task].check(self.data, self.tokenizer, self.batching, self.model, self.decoding)
        self._check_shards()
        schedule, warmup, updates = self.optimizer.schedule, self.optimizer.warmup_updates, self.training.num_updates
        ends = schedule in ENDLESS_SCHEDULES or warmup < updates
        problem = f"{warmup} must be less than training.num_updates={updates}: the {schedule} schedule decays after the warm-up"
        require(ends, "optimizer.warmup_updates", problem)

    def _check_shards(self) -> None:
        sizes = {"data": max(self.mesh.data, 1), "fsdp": max(self.mesh.fsdp, 1)}
        require_rows_divide(self.batching.row_multiple, self.batching.accumulation_steps, sizes)
        can_split = self.mesh.context == 1 or self.model.has_attention_backend
        require(can_split, "mesh.context", "splits sequences of Transformers only; use mesh.data for other models")
        length, context = getattr(self.batching, "row_length", 0), max(self.mesh.context, 1)
        require(length % context == 0, "mesh.context", f"{context} does not divide rows of {length} positions")

    @property
    def selections(self) -> list[Selection]:
        """The parts that settings of any block select."""
        blocks = {each.name: getattr(self, each.name) for each in fields(self)}
        found = selections(self, "")
        return found + [
            each for name, block in blocks.items() if is_dataclass(block) for each in selections(block, name)
        ]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that validations compute: of the scores of translations the named ones, and the one that selects."""
        left_out = set(SCORES) - set(self.validated_scores) if self.scores_translations else ()
        return tuple(metric for metric in TASKS[self.task].metrics if metric.name not in left_out)

    @property
    def validated_scores(self) -> tuple[str, ...]:
        """The scores of translations that validations compute, at least BLEU."""
        return score_names(f"{self.training.validation_metrics},{self.selection.name}") or ("bleu",)

    @property
    def selection(self) -> Metric:
        """The metric that selects checkpoints: the metric of the task, unless ``evaluation`` names or finds another."""
        facts, evaluation = TASKS[self.task], self.evaluation
        if self.scores_translations:
            evaluation = evaluation.resolved(self.data.target_language)
        return next((each for each in facts.metrics if each.name == evaluation.selection), facts.selection)

    @property
    def with_all_scores(self) -> "ExperimentConfig":
        """The settings with which validations compute all scores of ``evaluate``."""
        if not self.scores_translations:
            return self
        scores = ",".join(self.evaluation.scores(self.data.target_language))
        return replace(self, training=replace(self.training, validation_metrics=scores))

    @property
    def scoring(self) -> str:
        """A sentence on how validations are scored; empty for other tasks than translation."""
        if not self.scores_translations:
            return ""
        tokenizer = self.evaluation.tokenizer(self.data.target_language)
        return f"BLEU of validations is sacreBLEU's, cased, tokenized by {tokenizer}."

    @property
    def scores_translations(self) -> bool:
        """Whether ``evaluation`` chooses the scores: the task selects by BLEU."""
        return TASKS[self.task].selection.name == "bleu"

    @property
    def data_seed(self) -> int:
        """Seed of the data: ``data.seed``, or the seed of the run if it is -1."""
        return self.seed if self.data.seed < 0 else self.data.seed


def may_change(key: str, saved: ExperimentConfig, config: ExperimentConfig) -> bool:
    """Whether a run that was ``saved`` may resume as ``config``, which differs in ``key``.

    Settings may change that alter neither the model nor the order of its updates; ``evaluation.bleu_tokenizer`` changes scores.
    """
    if key == "init.embeddings":
        # A resumed run does not read the file; a run that had none cannot get one now.
        return bool(saved.init.embeddings)
    if key.startswith("init."):
        # A resumed run does not read the other run, which may be gone, or lie elsewhere now.
        return bool(saved.init.run) and (not config.init.run or key == "init.run")
    if key == "training.num_updates":
        # Others end at the last update, so every rate depends on the number of updates.
        return config.optimizer.schedule in ENDLESS_SCHEDULES
    if key in ("data.source_language", "data.target_language"):
        # They choose files or columns; a language that was not known has chosen none.
        return getattr(saved.data, key.removeprefix("data.")) == UNDETERMINED
    if key == "model.compute_dtype":
        # The dtype resolved when the run began stays, on any hardware.
        return config.model.compute_dtype == "auto"
    if key == "batching.width_multiple":
        return config.batching.width_multiple == 0
    if key == "evaluation.selection":
        # A command that does not state it keeps the metric of the run.
        return not config.evaluation.selection
    path, _, name = key.rpartition(".")
    block: Any = config
    if path.startswith("parts."):
        block = config.parts.get(path.removeprefix("parts."))
    elif path:
        block = getattr(config, path)
    owner = {} if block is None else declared(type(block))
    return name in owner and bool(owner[name].facts.get("changeable"))


Number = Any
"""A float here, a float32 scalar where a function is compiled; None if 0 removes a part of the program."""


class Rates(NamedTuple):
    """Probabilities of a model in training, by the names of their settings; None if the model has none or it is 0."""

    dropout: Number = None
    embedding_dropout: Number = None
    attention_dropout: Number = None
    activation_dropout: Number = None
    scheduled_sampling: Number = None


class Hyperparameters(NamedTuple):
    """Hyperparameters traced into the training step, by setting name. ``num_updates`` is where the cosine schedule ends.

    ``parts``: the traced settings of parts, by their name.
    """

    learning_rate: Number
    warmup_updates: Number
    num_updates: Number
    b1: Number
    b2: Number
    epsilon: Number
    weight_decay: Number
    clip_norm: Number
    label_smoothing: Number
    rates: Rates
    parts: Mapping[str, Mapping[str, Number]]


def _traced(block: Any) -> dict[str, float | None]:
    """The traced settings of a block; None if the compiled step does not have them."""
    found = {}
    for name, each in declared(type(block)).items():
        program = each.facts.get("program")
        if program in ("traced", "optional"):
            value = float(getattr(block, name))
            found[name] = None if value == 0 and program == "optional" else value
    return found


def rates_of(model: TaskBlock) -> Rates:
    return Rates(**_traced(model))


def hyperparameters_of(config: ExperimentConfig) -> Hyperparameters:
    parts = {name: numbers for name, settings in config.parts.items() if (numbers := _traced(settings))}
    return Hyperparameters(
        **_traced(config.optimizer), **_traced(config.training), rates=rates_of(config.model), parts=parts
    )


def parts_with(config: ExperimentConfig, hyperparameters: Hyperparameters) -> Parts:
    """The settings of parts, with the numbers of ``hyperparameters``, which may be traced."""
    return settings_with(config.parts, hyperparameters.parts)
