"""The settings of one run, whole, and the checks that involve more than one block of them."""

from dataclasses import dataclass, field, replace
from typing import Any

from transformer_jax.config.checks import require, require_choice
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.decoding import DecodingConfig
from transformer_jax.config.evaluation import SCORES, EvaluationConfig, score_names
from transformer_jax.config.initialization import InitConfig
from transformer_jax.config.metric import Metric
from transformer_jax.config.model import TransformerConfig
from transformer_jax.config.optimization import MeshConfig, OptimizerConfig, TrainingConfig
from transformer_jax.config.tasks import BLOCKS_OF_TASKS, DEFAULT_TASK, OWN_TASKS, TASKS, kinds_of

TaskBlock = Any
"""A settings dataclass that ``TASKS[task]`` names."""


@dataclass(frozen=True)
class ExperimentConfig:
    """One run, whole. The types of ``data``, ``batching``, ``model`` and ``decoding`` are those of its ``task``."""

    task: str = DEFAULT_TASK
    seed: int = 0
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

    def __post_init__(self) -> None:
        require_choice("task", self.task, tuple(OWN_TASKS), "task")
        require(0 <= self.seed < 2**32, "seed", f"{self.seed} must be at least 0 and below 2^32")
        for name in BLOCKS_OF_TASKS:
            block, kinds = getattr(self, name), kinds_of(self.task, name).values()
            problem = (
                f"{type(block).__name__} is not of task={self.task}, which has {', '.join(k.__name__ for k in kinds)}"
            )
            require(type(block) in kinds, name, problem)
        if self.evaluation.selection:
            names = tuple(metric.name for metric in TASKS[self.task].metrics)
            require_choice("evaluation.selection", self.evaluation.selection, names)
        TASKS[self.task].check(self.data, self.tokenizer, self.batching, self.model, self.decoding)
        self._check_shards()
        self._check_schedule()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What validations measure: of the scores of translations those that are named, and the one that selects."""
        left_out = set(SCORES) - set(self.validated_scores) if self.scores_translations else ()
        return tuple(metric for metric in TASKS[self.task].metrics if metric.name not in left_out)

    @property
    def validated_scores(self) -> tuple[str, ...]:
        """The scores of translations that validations compute, at least BLEU."""
        return score_names(f"{self.training.validation_metrics},{self.selection.name}") or ("bleu",)

    @property
    def selection(self) -> Metric:
        """The metric that selects checkpoints: that of the task, unless ``evaluation`` names or finds another."""
        facts, evaluation = TASKS[self.task], self.evaluation
        if self.scores_translations:
            evaluation = evaluation.resolved(self.data.target_language)
        return next((each for each in facts.metrics if each.name == evaluation.selection), facts.selection)

    @property
    def with_all_scores(self) -> "ExperimentConfig":
        """The settings with which validations compute all that ``evaluate`` does."""
        if not self.scores_translations:
            return self
        scores = ",".join(self.evaluation.scores(self.data.target_language))
        return replace(self, training=replace(self.training, validation_metrics=scores))

    @property
    def scoring(self) -> str:
        """A sentence on how validations are scored; empty where there is nothing to say."""
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
        """Seed of the data: ``data.seed``, or that of the run if it is -1, which always draws parameters and dropout."""
        return self.seed if self.data.seed < 0 else self.data.seed

    def _check_shards(self) -> None:
        shards = self.batching.accumulation_steps * max(self.mesh.data, 1) * max(self.mesh.fsdp, 1)
        divides = self.batching.row_multiple % shards == 0
        problem = (
            f"{self.batching.row_multiple} rows do not divide into {shards} parts "
            f"(mesh.data x mesh.fsdp x batching.accumulation_steps); use a multiple of {shards}"
        )
        require(divides, "batching.row_multiple", problem)
        splits = self.mesh.context == 1 or self.model.has_attention_backend
        problem = "splits sequences of Transformers only; use mesh.data for other models"
        require(splits, "mesh.context", problem)
        length, context = getattr(self.batching, "row_length", 0), max(self.mesh.context, 1)
        require(length % context == 0, "mesh.context", f"{context} does not divide rows of {length} positions")

    def _check_schedule(self) -> None:
        warmup, updates = self.optimizer.warmup_updates, self.training.num_updates
        ends = self.optimizer.schedule not in ("cosine", "linear") or warmup < updates
        schedule = self.optimizer.schedule
        problem = f"{warmup} leaves a {schedule} schedule nothing of training.num_updates={updates}; it must be less"
        require(ends, "optimizer.warmup_updates", problem)
