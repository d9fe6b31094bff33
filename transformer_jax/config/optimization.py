"""Settings of the update rule, the length of the training and the devices it runs on."""

import re
from dataclasses import asdict, dataclass

from transformer_jax.config.checks import require, require_choice, require_fraction, require_pattern, require_positive
from transformer_jax.config.evaluation import require_scores

OPTIMIZERS = ("adam", "adamw", "adafactor", "sgd", "adagrad")
TRACKERS = ("jsonl", "tensorboard", "wandb", "mlflow", "trackio")
BUDGET_POLICIES = ("shorten", "stretch")
SCHEDULES = ("noam", "inverse_square_root", "cosine", "linear", "constant")


@dataclass(frozen=True)
class OptimizerConfig:
    """The update rule and its learning-rate schedule.

    ``learning_rate``: the factor on the paper's formula for ``noam`` (1.0 as published), the peak rate for the others.
    ``freeze``: parameters in whose path (``encoder_layers_0/self_attention/query``) this regular expression is found stay as
    they are; empty, none do.
    """

    name: str = "adam"
    schedule: str = "noam"
    learning_rate: float = 1.0
    warmup_updates: int = 4000
    b1: float = 0.9
    b2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    freeze: str = ""

    def __post_init__(self) -> None:
        require_choice("optimizer.name", self.name, OPTIMIZERS, "optimizer")
        require_choice("optimizer.schedule", self.schedule, SCHEDULES)
        require_positive("optimizer", self, "learning_rate", "epsilon", "warmup_updates")
        require_fraction("optimizer", self, "b1", "b2")
        for name in ("weight_decay", "clip_norm"):
            require(getattr(self, name) >= 0, f"optimizer.{name}", "must not be negative; 0 turns it off")
        decays = self.weight_decay == 0 or self.name not in ("adam", "sgd", "adagrad")
        require(decays, "optimizer.weight_decay", f"{self.name} has none; use optimizer.name=adamw")
        require_pattern("optimizer.freeze", self.freeze)


@dataclass(frozen=True)
class TrainingConfig:
    """Length of training, and the intervals of logging, evaluation and checkpoints. Counts are in optimizer updates.

    With ``evaluate_every`` 0 the run never decodes, not even at its end: leave that to ``evaluate --watch``. Then no
    checkpoint is kept for its score, only the last ``keep_last``. ``validation_beam_width``: 1 decodes greedily, 0 as
    ``decoding`` says. ``validation_metrics``: scores of translations that validations compute besides the one that selects;
    ``evaluate`` computes more (TER costs thirty times as much as BLEU). Of updates whose loss or gradient is not finite
    ``skip_nonfinite`` are skipped and counted, over the whole run; the next one ends it, with the tensor that was not finite.
    An update that takes ``hang_factor`` times the median, and at least a minute, ends the process with status 75, for the
    scheduler to start it again, and leaves the stacks of all threads in ``hang.txt``; 0: never. With ``deterministic`` a GPU
    adds up in a fixed order, as CPUs and TPUs always do. A run with ``budget_seconds`` (0: none) estimates at every checkpoint
    when it will end; with ``budget_policy`` ``shorten`` it makes fewer updates where time would not suffice, and its
    learning rate decays sooner; with ``stretch`` it takes longer. ``xla_options``: options of XLA for the training step, as
    ``xla_tpu_scoped_vmem_limit_kib=65536,xla_tpu_enable_latency_hiding_scheduler=true``.
    """

    num_updates: int = 100_000
    label_smoothing: float = 0.1
    evaluate_every: int = 1000
    checkpoint_every: int = 1000
    log_every: int = 50
    patience: int = 0
    validation_sentences: int = 0
    validation_beam_width: int = 0
    validation_metrics: str = "bleu,chrf"
    keep_last: int = 5
    keep_best: int = 1
    skip_nonfinite: int = 0
    hang_factor: float = 0.0
    deterministic: bool = False
    budget_seconds: float = 0.0
    budget_policy: str = "shorten"
    xla_options: str = ""
    trackers: str = "jsonl,tensorboard"

    @property
    def tracker_names(self) -> tuple[str, ...]:
        """``trackers`` one by one."""
        return tuple(dict.fromkeys(name.strip() for name in self.trackers.split(",") if name.strip()))

    @property
    def compiler_options(self) -> dict[str, str | bool]:
        """``xla_options`` by name, as JAX takes them; raises ConfigError where one is not ``name=value``."""
        options: dict[str, str | bool] = {}
        for item in filter(None, map(str.strip, self.xla_options.split(","))):
            name, _, value = map(str.strip, item.partition("="))
            problem = f"{item!r} is not name=value; give options as xla_name=value,xla_other=true"
            require(bool(re.fullmatch(r"[a-z]\w*", name) and value), "training.xla_options", problem)
            require(name not in options, "training.xla_options", f"has {name} twice; leave one")
            options[name] = {"true": True, "false": False}.get(value.lower(), value)
        return options

    def __post_init__(self) -> None:
        # Read here for the mistakes in it.
        _ = self.compiler_options
        require_positive("training", self, "num_updates", "checkpoint_every", "log_every", "keep_last")
        require_fraction("training", self, "label_smoothing")
        counts = (
            "evaluate_every",
            "patience",
            "validation_sentences",
            "validation_beam_width",
            "keep_best",
            "skip_nonfinite",
            "hang_factor",
            "budget_seconds",
        )
        for name in counts:
            require(getattr(self, name) >= 0, f"training.{name}", "must not be negative; 0 turns it off")
        require_choice("training.budget_policy", self.budget_policy, BUDGET_POLICIES)
        for name in self.tracker_names:
            require_choice("training.trackers", name, TRACKERS, "tracker")
        require_scores("training.validation_metrics", self.validation_metrics)
        can_judge = self.patience == 0 or self.evaluate_every > 0
        require(can_judge, "training.patience", "needs validations; set training.evaluate_every above 0")


@dataclass(frozen=True)
class MeshConfig:
    """Number of devices along each mesh axis: they share the batch (``data``), parameters (``fsdp``), the positions of each
    sequence (``context``), each matrix (``tensor``).

    -1 means all devices that are left.
    """

    data: int = -1
    fsdp: int = 1
    context: int = 1
    tensor: int = 1

    @property
    def sizes(self) -> dict[str, int]:
        """The number of devices along each axis, slowest first."""
        return asdict(self)

    def __post_init__(self) -> None:
        sizes = self.sizes
        for name, size in sizes.items():
            require(
                size == -1 or size > 0, f"mesh.{name}", f"{size} must be above 0, or -1 for all devices that are left"
            )
        require(list(sizes.values()).count(-1) <= 1, "mesh", "only one axis can be -1")
