"""The settings of one run, checks between blocks, traced hyperparameters, and the changes that a resumed run accepts."""

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
from transformer_jax.config.plugins import names_of, registered, settings_class
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, TASKS, kinds_of
from transformer_jax.config.translation import DecodingConfig

TaskBlock = Any
"""A settings dataclass that ``TASKS[task]`` names."""


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run. ``task`` determines the types of ``data``, ``batching``, ``model`` and ``decoding``.

    ``parts``: settings of all parts that other settings select, defaults if not given.
    """

    task: str = setting(DEFAULT_TASK, "Task to train.", plugin="task")
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
            require_choice("evaluation.selection", self.evaluation.selection, names, "metric")
        TASKS[self.task].check(self.data, self.tokenizer, self.batching, self.model, self.decoding)
        self._check_shards()
        schedule, warmup, updates = self.optimizer.schedule, self.optimizer.warmup_updates, self.training.num_updates
        ends = schedule in ENDLESS_SCHEDULES or warmup < updates
        problem = f"{warmup} must be less than training.num_updates={updates}: the {schedule} schedule decays after the warm-up"
        problem += f"; use {updates // 10 or 1}, for example" if updates > 1 else "; use optimizer.schedule=constant"
        require(ends, "optimizer.warmup_updates", problem)

    def check_new_run(self) -> None:
        """Raises ConfigError for settings with which saved runs load and resume, but no run should begin.

        Blocks, parts and their settings may have ``check_new_run(config)``, a static method of a part.
        """
        parts = (registered(each.kind).get(each.name) for each in self.selections)
        for checked in (self.batching, self.model, self.decoding, *self.parts.values(), *parts):
            if check := getattr(checked, "check_new_run", None):
                check(self)

    def _repr_html_(self) -> str:
        from transformer_jax.notebook import settings_table

        return settings_table(self)

    def _check_shards(self) -> None:
        sizes = {"data": max(self.mesh.data, 1), "fsdp": max(self.mesh.fsdp, 1)}
        require_rows_divide(self.batching.row_multiple, self.batching.accumulation_steps, sizes)
        can_split = self.mesh.context == 1 or self.model.has_attention_backend
        require(can_split, "mesh.context", "splits sequences of Transformers only; use mesh.data for other models")
        length, context = getattr(self.batching, "row_length", 0), max(self.mesh.context, 1)
        require(length % context == 0, "mesh.context", f"{context} does not divide rows of {length} positions")

    @property
    def selections(self) -> list[Selection]:
        """The parts that the settings of all blocks select."""
        blocks = {each.name: getattr(self, each.name) for each in fields(self)}
        found = selections(self, "")
        return found + [
            each for name, block in blocks.items() if is_dataclass(block) for each in selections(block, name)
        ]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that validations compute: ``validated_scores``, and all metrics that are not scores of translations."""
        scores = {*SCORES, *names_of("metric")} if self.scores_translations else set()
        left_out = scores - {*self.validated_scores}
        return tuple(metric for metric in TASKS[self.task].metrics if metric.name not in left_out)

    @property
    def validated_scores(self) -> tuple[str, ...]:
        """The scores of translations that validations compute, at least BLEU."""
        return score_names(f"{self.training.validation_metrics},{self.selection.name}") or ("bleu",)

    @property
    def selection(self) -> Metric:
        """The metric that selects checkpoints: of ``evaluation`` if set or found by language, else of the task."""
        facts, evaluation = TASKS[self.task], self.evaluation
        if self.scores_translations:
            evaluation = evaluation.resolved(self.data.target_language)
        return next((each for each in facts.metrics if each.name == evaluation.selection), facts.selection)

    @property
    def validated_decoding(self) -> Any:
        """The settings of decoding of validations: perhaps with fewer beams, since training waits."""
        width = self.training.validation_beam_width if hasattr(self.decoding, "beam_width") else 0
        return replace(self.decoding, beam_width=width) if width else self.decoding

    @property
    def scoring(self) -> str:
        """A sentence on the BLEU of validations; empty for other tasks than translation."""
        if not self.scores_translations:
            return ""
        tokenizer = self.evaluation.tokenizer(self.data.target_language)
        return f"BLEU of validations is sacreBLEU's, cased, tokenized by {tokenizer}."

    @property
    def scores_translations(self) -> bool:
        """Whether the task selects by BLEU, so that ``evaluation`` chooses its scores."""
        return TASKS[self.task].scores_translations

    @property
    def data_seed(self) -> int:
        """``data.seed``, or the seed of the run if that is -1."""
        return self.seed if self.data.seed < 0 else self.data.seed


def may_change(key: str, saved: ExperimentConfig, config: ExperimentConfig) -> bool:
    """Whether a run with settings ``saved`` may resume with ``config``, which differs in ``key``.

    Settings may change if they alter neither the model nor its updates, and settings of a part if another part may be selected.
    ``evaluation.bleu_tokenizer`` alters scores; ``model.scan_layers``, ``model.rematerialize`` and, with these,
    ``training.watch`` alter dropout masks.
    """
    if key == "init.embeddings":
        # A resumed run ignores the file, but a run without one cannot get one.
        return bool(saved.init.embeddings)
    if key.startswith("init."):
        # A resumed run ignores the other run, which may have moved.
        return bool(saved.init.run) and (not config.init.run or key == "init.run")
    if key == "training.num_updates":
        # Rates of other schedules depend on the number of updates.
        return config.optimizer.schedule in ENDLESS_SCHEDULES
    if key in ("data.source_language", "data.target_language"):
        # Languages choose files or columns, but an unknown language has chosen none.
        return getattr(saved.data, key.removeprefix("data.")) == UNDETERMINED
    if key == "model.compute_dtype":
        # The run keeps the dtype that was resolved when it began.
        return config.model.compute_dtype == "auto"
    if key == "batching.width_multiple":
        return config.batching.width_multiple == 0
    if key == "evaluation.selection":
        # Empty: the run keeps its metric.
        return not config.evaluation.selection
    path, _, name = key.rpartition(".")
    of_part = path.startswith("parts.")
    block = config.parts.get(path.removeprefix("parts.")) if of_part else getattr(config, path) if path else config
    setting = None if block is None else declared(type(block)).get(name)
    if setting is not None and setting.facts.get("changeable"):
        return True
    # The metric that selects checkpoints stays, since its values are compared.
    return (
        of_part
        and path != f"parts.{saved.selection.name}"
        and any(may_change(each, saved, config) for each in selecting(key, saved, config))
    )


def selecting(key: str, *configs: ExperimentConfig) -> set[str]:
    """The settings of ``configs`` that select the part of ``key``, ``parts.NAME.FIELD``; another key alone."""
    first, _, rest = key.partition(".")
    if first != "parts":
        return {key}
    name, selected = rest.partition(".")[0], [each for config in configs for each in config.selections]
    return {each.key for each in selected if each.name == name and settings_class(each.kind, name)}


Number = Any
"""A float, or a traced float32 scalar; None if the value 0 removes a part of the program."""


class Rates(NamedTuple):
    """Probabilities of a model in training, by setting name; None if the model has no such setting or it is 0."""

    dropout: Number = None
    embedding_dropout: Number = None
    attention_dropout: Number = None
    activation_dropout: Number = None
    scheduled_sampling: Number = None


class Hyperparameters(NamedTuple):
    """Hyperparameters traced into the training step, by setting name; ``parts``: traced settings by part name."""

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
    """The traced settings of a block; None for those not in the compiled step."""
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
    """The settings of parts with the numbers of ``hyperparameters``, which may be traced."""
    return settings_with(config.parts, hyperparameters.parts)
