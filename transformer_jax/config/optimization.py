"""Settings of the update rule, the length of training, and the devices."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from transformer_jax.config.checks import check_settings, declared, rate, setting
from transformer_jax.config.tasks import SCORES
from transformer_jax.errors import ConfigError
from transformer_jax.registry.plugins import registered

DECAYS = {"noam": False, "inverse_square_root": False, "constant": False, "cosine": True, "linear": True}


def decays(schedule: str) -> bool:
    """Return whether the rate depends on the number of updates of the run.

    A registered schedule says so in its attribute ``decays``. Without the attribute, as in earlier
    versions, it is assumed to decay, and no new run may begin with it.
    """
    if schedule in DECAYS:
        return DECAYS[schedule]
    value = getattr(registered("schedule")[schedule], "decays", True)
    if type(value) is not bool:
        raise ConfigError("optimizer.schedule", f"decays = {value!r} of {schedule}", "write True or False")
    return value


def says_whether_it_decays(schedule: str) -> bool:
    return schedule in DECAYS or hasattr(registered("schedule")[schedule], "decays")


def require_says_whether_it_decays(schedule: str) -> None:
    """Raise ConfigError unless the schedule says whether its rate depends on the run's length."""
    if not says_whether_it_decays(schedule):
        function = getattr(registered("schedule")[schedule], "__name__", schedule)
        problem = f"{schedule} does not say whether its rate depends on the number of updates"
        raise ConfigError("optimizer.schedule", problem, f"write {function}.decays = True or False below it")


def names_in(setting: str) -> Any:
    """Return a property for the names that a setting lists, in order."""
    return property(lambda self: tuple(declared(type(self))[setting].choices_in(getattr(self, setting))))


@dataclass(frozen=True)
class OptimizerConfig:
    """The update rule and its learning-rate schedule."""

    name: str = setting("adam", "Update rule.", plugin="optimizer")
    schedule: str = setting(
        "noam",
        "Learning-rate schedule after the warm-up; noam: the schedule of Vaswani et al. 2017.",
        plugin="schedule",
    )
    learning_rate: float = setting(
        1.0,
        "Peak learning rate; for noam the factor on the formula of the paper (section 5.3).",
        program="traced",
        schedulable=False,
    )
    warmup_updates: int = setting(4000, "Updates of the warm-up.", program="traced")
    b1: float = setting(0.9, "Adam: decay of the first moment.", at_least=0, below=1, program="traced")
    b2: float = setting(0.98, "Adam: decay of the second moment.", at_least=0, below=1, program="traced")
    epsilon: float = setting(
        1e-9, "Adam: added to the root of the second moment; adagrad: its square, under the root.", program="traced"
    )
    weight_decay: float = setting(
        0.0, "Decoupled weight decay of an update, times the learning rate; 0: none.", at_least=0, program="optional"
    )
    clip_norm: float = setting(0.0, "Maximum norm of the gradient; 0: no clipping.", at_least=0, program="optional")
    freeze: str = setting(
        "",
        "Regular expression, searched in paths such as encoder_layers_0/self_attention/query: these parameters are "
        "not trained.",
        pattern=True,
    )
    averaging: str = setting(
        "none",
        "Average of the parameters over updates, which is evaluated and saved instead of the parameters.",
        choices=("none",),
        plugin="averaging",
    )
    after_update: str = setting(
        "",
        "Changes of the parameters after each update, in order, such as projections; separated by commas.",
        plugin="after_update",
        several=True,
        ordered=True,
    )

    after_update_names = names_in("after_update")

    def __post_init__(self) -> None:
        check_settings("optimizer", self)
        if self.weight_decay != 0 and self.name in ("adam", "sgd", "adagrad"):
            raise ConfigError("optimizer.weight_decay", f"{self.name} has none", "use optimizer.name=adamw")


@dataclass(frozen=True)
class TrainingConfig:
    """Length of training, and intervals of log, validation and checkpoints, in updates.

    Without validations (``evaluate_every`` 0) only the last ``keep_last`` checkpoints are kept.
    """

    num_updates: int = setting(100_000, "Updates of the whole run.", program="traced")
    label_smoothing: float = rate(0.1, "Probability spread evenly over all tokens (section 5.4).")
    loss_terms: str = setting(
        "", "Terms that are added to the loss, separated by commas.", plugin="loss_term", several=True
    )
    corruptions: str = setting(
        "",
        "Corruptions of the tokens that the model reads, in order; the labels stay.",
        plugin="corruption",
        several=True,
        ordered=True,
    )
    watch: str = setting(
        "", "Statistics logged as train/NAME, separated by commas.", plugin="statistic", several=True, changeable=True
    )
    evaluate_every: int = setting(
        1000, "Updates between validations; 0: none, and the best checkpoint is the last.", at_least=0
    )
    checkpoint_every: int = setting(1000, "Updates between checkpoints.")
    log_every: int = setting(50, "Updates between log lines.", changeable=True)
    patience: int = setting(
        0, "Validations without improvement that end the run; 0: never.", at_least=0, changeable=True
    )
    validation_sentences: int = setting(0, "Sentences of the validation split that are decoded; 0: all.", at_least=0)
    validation_beam_width: int = setting(
        0, "Beam width of validations; 1 is greedy and fast, 0: the beam width of decoding.", at_least=0
    )
    validation_metrics: str = setting(
        "bleu,chrf",
        "Scores of translations that validations compute, with evaluation.selection; TER takes thirty times as long "
        "as BLEU.",
        choices=SCORES,
        plugin="metric",
        several=True,
        changeable=True,
    )
    keep_last: int = setting(5, "Number of newest checkpoints to keep.", changeable=True)
    keep_best: int = setting(1, "Number of best checkpoints to keep.", at_least=0, changeable=True)
    skip_nonfinite: int = setting(
        0,
        "Updates with a nonfinite loss or gradient to skip, over the whole run; the next one ends it and names the "
        "tensor.",
        at_least=0,
        changeable=True,
    )
    hang_factor: float = setting(
        0.0,
        "An update of this many times the mean time of recent ones, and at least a minute, or a checkpoint of an hour ends "
        "the process with status 75, for the scheduler to restart it; hang.txt has the stacks of all threads; 0: never.",
        at_least=0,
        changeable=True,
    )
    deterministic: bool = setting(
        False, "Reductions on a GPU have a fixed order, so that runs repeat bit for bit; slower.", changeable=True
    )
    budget_seconds: float = setting(
        0.0, "Seconds that the run may take over all its starts; --budget sets it; 0: any.", at_least=0, changeable=True
    )
    budget_policy: Literal["shorten", "stretch"] = setting(
        "shorten",
        "If the budget will not suffice: fewer updates, with an earlier decay of the learning rate (shorten), or more "
        "time (stretch).",
        changeable=True,
    )
    xla_options: str = setting(
        "",
        "XLA compiler options of the training step, such as xla_tpu_scoped_vmem_limit_kib=65536,xla_other=true; fixed "
        "when the run begins.",
    )
    trackers: str = setting(
        "jsonl,tensorboard",
        "Experiment trackers, separated by commas; metrics.jsonl is always written.",
        choices=("jsonl",),
        plugin="tracker",
        several=True,
        changeable=True,
    )

    loss_term_names = names_in("loss_terms")
    corruption_names = names_in("corruptions")
    watch_names = names_in("watch")
    tracker_names = names_in("trackers")

    @property
    def compiler_options(self) -> dict[str, str | bool]:
        """``xla_options`` by name, for JAX. Raises ConfigError if one is not ``name=value``."""
        options: dict[str, str | bool] = {}
        for item in filter(None, map(str.strip, self.xla_options.split(","))):
            name, _, value = map(str.strip, item.partition("="))
            if not re.fullmatch(r"[a-z]\w*", name) or not value:
                problem = f"{item!r} is not name=value; give options as xla_name=value,xla_other=true"
                raise ConfigError("training.xla_options", problem)
            if name in options:
                raise ConfigError("training.xla_options", f"has {name} twice", "leave one")
            options[name] = {"true": True, "false": False}.get(value.lower(), value)
        return options

    def __post_init__(self) -> None:
        check_settings("training", self)
        _ = self.compiler_options
        if self.patience and not self.evaluate_every:
            raise ConfigError("training.patience", "needs validations", "set training.evaluate_every above 0")


ALL_DEVICES = (-1, "for all remaining devices")


@dataclass(frozen=True)
class MeshConfig:
    """Number of devices along each mesh axis. One axis may be -1, for all remaining devices."""

    data: int = setting(
        -1, "Devices that share the batch; -1: all remaining devices.", unless=ALL_DEVICES, changeable=True
    )
    fsdp: int = setting(1, "Devices that share parameters and optimizer state.", unless=ALL_DEVICES, changeable=True)
    context: int = setting(1, "Devices that share the positions of each sequence.", unless=ALL_DEVICES, changeable=True)
    tensor: int = setting(1, "Devices that share each matrix.", unless=ALL_DEVICES, changeable=True)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of devices along each axis, outermost first."""
        return asdict(self)

    def __post_init__(self) -> None:
        check_settings("mesh", self)
        if list(self.sizes.values()).count(-1) > 1:
            raise ConfigError("mesh", "only one axis can be -1")


def mesh_sizes(mesh: MeshConfig, device_count: int, whose: str = "that are here") -> dict[str, int]:
    """Return the size of each axis over ``device_count`` devices: ``{"data": 4, "fsdp": 2, ...}``.

    Resolves -1. Raises ConfigError, with possible meshes, when the product of the sizes is not the
    number of devices; ``whose`` describes the devices in the message.
    """
    sizes = mesh.sizes
    product = math.prod(size for size in sizes.values() if size != -1)
    if device_count % product == 0:
        sizes = {axis: device_count // product if size == -1 else size for axis, size in sizes.items()}
    if math.prod(sizes.values()) != device_count:
        wanted = ", ".join(f"{axis}={size}" for axis, size in mesh.sizes.items())
        divisors = [size for size in range(2, device_count + 1) if device_count % size == 0][:3]
        alone = dict.fromkeys(sizes, 1) | {"data": -1}
        possible = [alone, *(alone | {axis: size} for axis in ("fsdp", "tensor") for size in divisors)]
        proposals = "; ".join(
            "--config.mesh=" + ",".join(f"{axis}={size}" for axis, size in sizes.items()) for sizes in possible
        )
        raise ConfigError("mesh", f"{wanted} does not use the {device_count} devices {whose}", f"possible: {proposals}")
    return sizes


def require_rows_divide(row_multiple: int, accumulation_steps: int, sizes: Mapping[str, int]) -> None:
    """Raise ConfigError unless the rows of a micro-batch divide over the data and fsdp axes."""
    divisor = sizes["data"] * sizes["fsdp"] * accumulation_steps
    if row_multiple % divisor:
        product = f"mesh data {sizes['data']} x fsdp {sizes['fsdp']} x accumulation_steps {accumulation_steps}"
        raise ConfigError(
            "batching.row_multiple",
            f"{row_multiple} is not a multiple of {divisor} ({product})",
            f"use {divisor} or a multiple",
        )
