"""Files that start a run or a sweep with a scheduler: SLURM, Kubernetes, SkyPilot. This module holds their workloads.

Text in, text out: nothing here connects to a cluster, so that the user can read, keep and change the file before it runs.
submitit, which submits to SLURM from Python, is not used: it ships functions as pickles, and nothing read from disk here may
run code. How processes find each other is left to ``jax.distributed.initialize`` and the variables that it reads.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.optimization import mesh_sizes, require_rows_divide

PROGRAM = "transformer-jax"
DISTRIBUTED_FLAGS = ("--distributed", "--nodistributed")
LONGEST_NAME = 40


@dataclass(frozen=True)
class Training:
    """A run of one or several processes: ``arguments`` of ``transformer-jax``, from ``train`` on, and their settings."""

    arguments: tuple[str, ...]
    workdir: str
    config: ExperimentConfig

    def command(self, num_processes: int) -> list[str]:
        kept = [word for word in self.arguments[1:] if word.partition("=")[0] not in DISTRIBUTED_FLAGS]
        distributed = ["--distributed"] if num_processes > 1 else []
        return [PROGRAM, self.arguments[0], *distributed, *kept]

    def require_fits(self, num_devices: int) -> None:
        """Raises ConfigError, with a remedy, unless the mesh and the batch divide over the devices."""
        sizes = mesh_sizes(self.config.mesh, num_devices, "that the launch asks for")
        batching = self.config.batching
        require_rows_divide(batching.row_multiple, batching.accumulation_steps, sizes)


@dataclass(frozen=True)
class Sweep:
    """A sweep of ``workers`` processes, each on its own devices; ``flags``: more flags of the command.

    The study lies in the database that the environment of the workers names (``has_database``), else in ``workdir``, which must
    then be on a disk that all of them see.
    """

    file: str
    workdir: str
    workers: int
    flags: tuple[str, ...] = ()
    has_database: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"--workers: {self.workers} must be at least 1")
        if self.workers > 1 and not is_absolute(self.workdir):
            raise ConfigError(f"--workdir: {self.workdir!r} is not absolute; all workers must see it")

    def command(self) -> list[str]:
        return [PROGRAM, "sweep", f"--sweep={self.file}", f"--workdir={self.workdir}", *self.flags, "--workers=1"]


def shared_cache(workdir: str) -> str | None:
    """The folder ``cache`` beside a run, which all its machines see as they see the run; None for a relative path."""
    parent = workdir.rstrip("/").rpartition("/")[0]
    return f"{parent}/cache" if is_absolute(workdir) and parent not in ("", "~") else None


def is_absolute(path: str) -> bool:
    """Whether a path on the machines of the launch means the same wherever the program starts."""
    return path.startswith("~/") or PurePosixPath(path).is_absolute()


def name_of_workdir(workdir: str) -> str:
    """A name after the last part of a folder: ``runs/Base_v2`` is ``base-v2``; raises ConfigError where nothing is left."""
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    name = re.sub("[^a-z0-9]+", "-", last).lstrip("-0123456789")[:LONGEST_NAME].rstrip("-")
    if not name:
        raise ConfigError(f"--name: is needed, as --workdir={workdir} does not give one")
    return name


def require_name(name: str) -> None:
    """Raises ConfigError unless all launchers take the name: a label of RFC 1035, for the headless service of the JobSet.

    At most 40 characters, since Kubernetes adds to it for the name of a host, of at most 63.
    """
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        needed = f"at most {LONGEST_NAME} lower-case letters, digits and hyphens, and begin with a letter"
        raise ConfigError(f"--name: {name!r} must be {needed}, such as base-4x8")


def require_words(settings: object, flags: tuple[str, ...]) -> None:
    """Raises ConfigError unless each flag, if given, is one word without a meaning for the shell or for sbatch."""
    for flag in flags:
        text = getattr(settings, flag)
        if text is not None and not re.fullmatch(r"[^\s\"'`\\$#]+", text):
            raise ConfigError(f"--{flag}: {text!r} must be one word without quotes, $, # and backslashes")


def require_memory(text: str | None, units: str) -> None:
    """Raises ConfigError unless the text, if given, is a whole number with one of the ``units``, as in ``G|M``."""
    if text is not None and not re.fullmatch(rf"[1-9][0-9]*({units})", text):
        raise ConfigError(f"--memory: {text!r} is not a number with one of {units.replace('|', ', ')}, such as 64G")
