"""The settings of one run, checks between its blocks, and settings that may change later."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

from transformer_jax.config.checks import LARGEST_SEED, check_choice, check_settings, declared, setting
from transformer_jax.config.data import TokenizerConfig
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.config.languages import UNDETERMINED
from transformer_jax.config.model import InitConfig
from transformer_jax.config.optimization import (
    MeshConfig,
    OptimizerConfig,
    TrainingConfig,
    decays,
    require_rows_divide,
    require_says_whether_it_decays,
    says_whether_it_decays,
)
from transformer_jax.config.parts import Parts, Selection, complete_parts, selections
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, SCORES, TASKS, Metric, kinds_of, score_names
from transformer_jax.config.update_schedules import Scheduled
from transformer_jax.errors import ConfigError
from transformer_jax.registry.plugins import names_of, registered, settings_class

TaskBlock = Any
"""A settings dataclass that ``TASKS[task]`` names."""
PARTS = "parts"


def _default(name: str) -> Callable[[], Any]:
    return lambda: next(iter(kinds_of(DEFAULT_TASK, name).values()))()


@dataclass(frozen=True)
class ExperimentConfig:
    """The settings of one run. ``task`` determines the types of some blocks.

    ``parts``: settings of all parts that other settings select, by default their defaults.
    """

    task: str = setting(DEFAULT_TASK, "Task to train.", plugin="task")
    seed: int = setting(
        0, "Seed of parameters and dropout, and of the data unless data.seed is set.", at_least=0, at_most=LARGEST_SEED
    )
    data: TaskBlock = field(default_factory=_default("data"))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    batching: TaskBlock = field(default_factory=_default("batching"))
    model: TaskBlock = field(default_factory=_default("model"))
    init: InitConfig = field(default_factory=InitConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: TaskBlock = field(default_factory=_default("decoding"))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        check_settings("", self)
        object.__setattr__(self, PARTS, complete_parts(self.parts, self.selections))
        task, evaluation, batching, mesh = TASKS[self.task], self.evaluation, self.batching, self.mesh
        for name in BLOCKS_OF_TASKS:
            block, kinds = type(getattr(self, name)), kinds_of(self.task, name).values()
            if block not in kinds:
                allowed = ", ".join(kind.__name__ for kind in kinds)
                raise ConfigError(name, f"{block.__name__} is not one of {allowed}, task={self.task}")
        if evaluation.selection:
            names = tuple(metric.name for metric in task.metrics)
            check_choice("evaluation.selection", evaluation.selection, names, "metric")
        task.check(self.data, self.tokenizer, batching, self.model, self.decoding)
        sizes = {"data": max(mesh.data, 1), "fsdp": max(mesh.fsdp, 1)}
        require_rows_divide(batching.row_multiple, batching.accumulation_steps, sizes)
        if mesh.context != 1 and not self.model.has_attention_backend:
            raise ConfigError("mesh.context", "splits sequences of Transformers only", "use mesh.data for other models")
        if (length := getattr(batching, "row_length", 0)) % max(mesh.context, 1):
            raise ConfigError("mesh.context", f"{mesh.context} does not divide rows of {length} positions")
        schedule, warmup, updates = self.optimizer.schedule, self.optimizer.warmup_updates, self.training.num_updates
        if warmup >= updates and decays(schedule):
            says = "decays after the warm-up" if says_whether_it_decays(schedule) else "does not say decays = False"
            reason = f"the {schedule} schedule {says}"
            problem = f"{warmup} must be less than training.num_updates={updates}: {reason}"
            remedy = f"use {updates // 10 or 1}, for example" if updates > 1 else "use optimizer.schedule=constant"
            raise ConfigError("optimizer.warmup_updates", problem, remedy)

    def check_new_run(self) -> None:
        """Raise ConfigError for settings with which saved runs resume, but no run should begin.

        Blocks, parts and their settings may have ``check_new_run(config)``, a static method of a
        part.
        """
        require_says_whether_it_decays(self.optimizer.schedule)
        parts = (registered(kind).get(name) for _, kind, name in self.selections)
        for checked in (self.batching, self.model, self.decoding, *self.parts.values(), *parts):
            if check := getattr(checked, "check_new_run", None):
                check(self)

    def _repr_html_(self) -> str:
        from transformer_jax.notebook import settings_table

        return settings_table(self)

    @property
    def selections(self) -> list[Selection]:
        """The parts that the settings of all blocks select."""
        blocks = {"": self} | {member.name: getattr(self, member.name) for member in fields(self)}
        return [part for name, block in blocks.items() if is_dataclass(block) for part in selections(block, name)]

    @property
    def schedules(self) -> dict[str, Scheduled]:
        """The settings that are schedules of the update, by dotted key."""
        blocks = {name: getattr(self, name) for name in ("optimizer", "training", "model")}
        blocks |= {f"{PARTS}.{name}": settings for name, settings in self.parts.items()}
        values = ((f"{path}.{name}", value) for path, block in blocks.items() for name, value in vars(block).items())
        return {key: value for key, value in values if isinstance(value, Scheduled)}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that validations compute: of scores only ``validated_scores``."""
        scores = {*SCORES, *names_of("metric")} if self.scores_translations else set()
        left_out = scores - {*self.validated_scores}
        return tuple(metric for metric in TASKS[self.task].metrics if metric.name not in left_out)

    @property
    def validated_scores(self) -> tuple[str, ...]:
        """The scores of translations that validations compute, at least BLEU."""
        return score_names(f"{self.training.validation_metrics},{self.selection.name}") or ("bleu",)

    @cached_property
    def selection(self) -> Metric:
        """The metric that selects checkpoints: of ``evaluation``, by language, or of the task."""
        task, evaluation = TASKS[self.task], self.evaluation
        if self.scores_translations:
            evaluation = evaluation.resolved(self.data.target_language)
        return next((metric for metric in task.metrics if metric.name == evaluation.selection), task.selection)

    @property
    def scoring(self) -> str:
        """A sentence on the BLEU of validations, empty for other tasks than translation."""
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
    """Return whether a run may resume with ``config``, which differs from ``saved`` in ``key``.

    Settings may change if they alter neither the model nor its updates, and settings of a part if
    another part may be selected. ``evaluation.bleu_tokenizer`` alters scores.
    ``model.scan_layers``, ``model.rematerialize`` and, with these, ``training.watch`` alter dropout
    masks.
    """
    path, _, name = key.rpartition(".")
    if path == "init":
        # A resumed run ignores its source, which may have moved. It cannot get a first source.
        return bool(saved.init.embeddings if name == "embeddings" else saved.init.run) and (
            name in ("run", "embeddings") or not config.init.run
        )
    exceptions = {
        # A schedule without updates ends with the run.
        "training.num_updates": lambda: (
            not decays(config.optimizer.schedule) and all(schedule.ramp.last for schedule in config.schedules.values())
        ),
        # Languages select files or columns, but an unknown language selected none.
        "data.source_language": lambda: saved.data.source_language == UNDETERMINED,
        "data.target_language": lambda: saved.data.target_language == UNDETERMINED,
        # The run keeps the value that was resolved when it began.
        "model.compute_dtype": lambda: config.model.compute_dtype == "auto",
        "batching.width_multiple": lambda: config.batching.width_multiple == 0,
        "evaluation.selection": lambda: not config.evaluation.selection,
    }
    if key in exceptions:
        return bool(exceptions[key]())
    first, _, part = path.partition(".")
    block = config.parts.get(part) if first == PARTS else getattr(config, path) if path else config
    declaration = None if block is None else declared(type(block)).get(name)
    if declaration and declaration.facts.get("changeable"):
        return True
    # The metric that selects checkpoints stays, since its values are compared.
    is_other_part = first == PARTS and part != saved.selection.name
    return is_other_part and any(may_change(other, saved, config) for other in selecting(key, saved, config))


def selecting(key: str, *configs: ExperimentConfig) -> set[str]:
    """Return the settings that select the part NAME of a ``key`` ``parts.NAME.FIELD``.

    For any other key, returns the key.
    """
    first, _, rest = key.partition(".")
    if first != PARTS:
        return {key}
    part = rest.partition(".")[0]
    selected = {selection for config in configs for selection in config.selections}
    return {setting for setting, kind, name in selected if name == part and settings_class(kind, name)}
