"""Job files for SLURM, Kubernetes and SkyPilot; this module defines the workloads that they start.

Nothing here connects to a cluster: the user can read, keep and change the file before submitting it. Processes find each other
through ``jax.distributed.initialize`` and the variables that it reads.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import is_address
from transformer_jax.config.optimization import mesh_sizes, require_rows_divide
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE

PROGRAM = "transformer-jax"
DISTRIBUTED_FLAGS = ("--distributed", "--nodistributed")
LONGEST_NAME = 40


@dataclass(frozen=True)
class Tokenizing:
    """Jobs that tokenize the training split in ``shards``, alone or before a run: ``flags`` of ``tokenize`` without --shard.

    The first shard comes alone, since it trains the tokenizers; then all follow, where the first finds that it is done.
    ``workdir`` is the folder or address of the store.
    """

    flags: tuple[str, ...]
    shards: int
    workdir: str
    followers: ClassVar[tuple[()]] = ()

    @property
    def tokenizing(self) -> "Tokenizing":
        return self

    def command(self, index: str) -> str:
        """The shell command for a shard; ``index`` may be a variable of the shell."""
        return f"{shlex.join([PROGRAM, 'tokenize', *self.flags])} --shard={index}/{self.shards}"


@dataclass(frozen=True)
class Training:
    """A run of one or several processes: the command line after ``transformer-jax``, and the settings that it gives.

    ``budget``: the time by which it chooses sizes; ``tokenizing``: jobs that must be complete before it; ``followers``: jobs
    beside it or after it.
    """

    arguments: tuple[str, ...]
    workdir: str
    config: ExperimentConfig
    tokenizing: Tokenizing | None = None
    followers: "tuple[Sweep | Evaluation, ...]" = ()
    budget: str | None = None

    def command(self, num_processes: int) -> list[str]:
        """Raises ConfigError where several processes would choose sizes, each by its own speed."""
        if self.budget and num_processes > 1:
            problem = f"{self.budget} sizes a run of one process, and the launch requests {num_processes}"
            raise ConfigError(f"--budget: {problem}; take a recipe with sizes, or a run that has begun (--config=RUN)")
        kept = [word for word in self.arguments[1:] if word.partition("=")[0] not in DISTRIBUTED_FLAGS]
        distributed = ["--distributed"] if num_processes > 1 else []
        return [PROGRAM, self.arguments[0], *distributed, *kept]

    def require_fits(self, num_devices: int) -> None:
        """Raises ConfigError unless mesh and batch divide over the devices."""
        _require_fits(self.config, num_devices)


@dataclass(frozen=True)
class Sweep:
    """A sweep of ``workers`` processes, each on its own devices; ``flags``: further flags of the command.

    ``has_database``: the study is in a database whose URL is in the environment of the workers. Otherwise it is a file in
    ``workdir``, which must be on a shared disk. ``configs``: the settings of its trials.
    """

    file: str
    workdir: str
    workers: int
    flags: tuple[str, ...] = ()
    has_database: bool = False
    configs: tuple[ExperimentConfig, ...] = ()
    tokenizing: ClassVar[None] = None
    followers: ClassVar[tuple[()]] = ()
    kind: ClassVar[str] = "sweep"
    is_beside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if is_address(self.workdir):
            if not self.has_database:
                raise ConfigError(f"--workdir: {self.workdir}: a store cannot hold the study; set {STORAGE_VARIABLE}")
        elif self.workers > 1 and not is_absolute(self.workdir):
            raise ConfigError(f"--workdir: {self.workdir!r} is not absolute; all workers must see it")

    def require_fits(self, num_devices: int) -> None:
        """Raises ConfigError unless mesh and batch of each trial divide over the devices of a worker."""
        for config in self.configs:
            _require_fits(config, num_devices)

    def command(self) -> list[str]:
        return [PROGRAM, "sweep", f"--sweep={self.file}", f"--workdir={self.workdir}", *self.flags, "--workers=1"]


@dataclass(frozen=True)
class Evaluation:
    """``evaluate`` of a run on one device, after the run or, with ``--watch``, beside it; ``arguments`` as of ``Training``."""

    arguments: tuple[str, ...]
    workdir: str
    is_beside: bool
    workers: ClassVar[int] = 1
    has_database: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        return "watch" if self.is_beside else "evaluate"

    def command(self) -> list[str]:
        return [PROGRAM, *self.arguments]


Workload = Tokenizing | Training | Sweep


def _require_fits(config: ExperimentConfig, num_devices: int) -> None:
    sizes = mesh_sizes(config.mesh, num_devices, "that the launch requests")
    require_rows_divide(config.batching.row_multiple, config.batching.accumulation_steps, sizes)


def beside(workdir: str, name: str) -> str | None:
    """The folder ``name`` next to a run directory, on the same shared disk; None for a relative path."""
    parent = workdir.rstrip("/").rpartition("/")[0]
    return f"{parent}/{name}" if is_absolute(workdir) and parent not in ("", "~") else None


def needs_cache(config: ExperimentConfig) -> bool:
    """Whether the settings leave the folder of tokenized corpora and compiled programs at its default."""
    default = getattr(type(config.data), "cache_directory", None)
    return default is not None and config.data.cache_directory == default


def logs_of(workdir: str) -> str:
    """The folder of job logs: next to the run directory, or ``logs`` where ``#SBATCH`` could not write that path."""
    folder = beside(workdir, "logs") or ""
    return folder if re.fullmatch(r"/[\w./-]+", folder) else "logs"


def is_absolute(path: str) -> bool:
    """Whether a path does not depend on the working directory."""
    return path.startswith("~/") or PurePosixPath(path).is_absolute()


def name_of_workdir(workdir: str) -> str:
    """The job name for a run or a store: ``runs/Base_v2`` gives ``base-v2``; raises ConfigError if no letter is left."""
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    name = re.sub("[^a-z0-9]+", "-", last).lstrip("-0123456789")[:LONGEST_NAME].rstrip("-")
    if not name:
        raise ConfigError(f"--name: is missing, and {workdir} gives none")
    return name


def require_name(name: str) -> None:
    """Raises ConfigError unless the name is valid for all launchers: a label of RFC 1035 of at most 40 characters.

    Kubernetes appends to it to name a host, and host names have at most 63 characters.
    """
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        needed = f"at most {LONGEST_NAME} lower-case letters, digits and hyphens, and begin with a letter"
        raise ConfigError(f"--name: {name!r} must be {needed}, such as base-4x8")


def require_given(settings: object, **examples: str) -> None:
    """Raises ConfigError that names a flag with its example if it was not given."""
    for flag, example in examples.items():
        if getattr(settings, flag) is None:
            raise ConfigError(f"--{flag}: is missing; write --{flag}={example}")


def require_memory(text: str | None, units: str) -> None:
    """Raises ConfigError unless the text, if given, is a whole number followed by one of ``units``, such as ``M|G``."""
    if text is not None and not re.fullmatch(rf"[1-9][0-9]*({units})", text):
        raise ConfigError(f"--memory: {text!r} is not a number with one of {units.replace('|', ', ')}, such as 64G")
