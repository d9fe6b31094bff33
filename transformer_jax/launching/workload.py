"""What is launched: a training of several processes, or the workers of a sweep, each on its own."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.mesh_sizes import mesh_sizes, require_rows_divide

PROGRAM = "transformer-jax"
DISTRIBUTED_FLAGS = ("--distributed", "--nodistributed")
DATABASES = ("postgresql", "mysql", "mariadb", "oracle", "mssql", "redis")


@dataclass(frozen=True)
class Training:
    """``arguments`` of ``transformer-jax``, from ``train`` on, and the settings that they stand for."""

    arguments: tuple[str, ...]
    workdir: str
    config: ExperimentConfig

    def command(self, num_processes: int) -> list[str]:
        """The command of each of ``num_processes``."""
        kept = [word for word in self.arguments[1:] if word.partition("=")[0] not in DISTRIBUTED_FLAGS]
        distributed = ["--distributed"] if num_processes > 1 else []
        return [PROGRAM, self.arguments[0], *distributed, *kept]

    def require_fits(self, num_devices: int) -> None:
        """Raises ConfigError, saying what would fit, unless the mesh and the batch divide over so many devices."""
        sizes = mesh_sizes(self.config.mesh, num_devices, "that the launch asks for")
        batching = self.config.batching
        require_rows_divide(batching.row_multiple, batching.accumulation_steps, sizes)


@dataclass(frozen=True)
class Sweep:
    """A study that ``workers`` processes share, each on devices of its own, through ``storage`` alone."""

    file: str
    workdir: str
    storage: str | None
    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"--workers: {self.workers} must be at least 1")
        if self.workers > 1:
            require_shared_storage(self.storage)

    def command(self) -> list[str]:
        """The command of one worker."""
        storage = [] if self.storage is None else [f"--storage={self.storage}"]
        return [PROGRAM, "sweep", f"--sweep={self.file}", f"--workdir={self.workdir}", *storage, "--workers=1"]


def storage_path(storage: str) -> str | None:
    """The file of a journal storage, written as a path or as ``journal:PATH``; None for the address of a database."""
    scheme, colon, rest = storage.partition(":")
    if not colon or "/" in scheme:
        return storage
    return re.sub("^//", "", rest) if scheme == "journal" else None


def require_shared_storage(storage: str | None) -> None:
    """Raises ConfigError unless workers on several machines can share the study.

    SQLite is refused: its locks do not hold on network file systems (Optuna's documentation, ``JournalStorage`` and the FAQ
    "How can I solve the error that occurs when performing parallel optimization with SQLite3?").
    """
    advice = (
        "workers on several machines share a study through --storage=postgresql://USER:PASSWORD@HOST/NAME (or mysql, redis), "
        "or through a journal on a disk that all see: --storage=/shared/sweeps/study.journal"
    )
    if not storage:
        raise ConfigError(f"--storage: is missing; {advice}")
    path = storage_path(storage)
    if path is None:
        kind = storage.partition(":")[0].partition("+")[0]
        if kind not in DATABASES:
            raise ConfigError(f"--storage: {kind} is not shared between machines; {advice}")
    elif not is_absolute(path):
        raise ConfigError(f"--storage: {path!r} is not an absolute path; {advice}")


def is_absolute(path: str) -> bool:
    """Whether a path on the machines of the launch means the same wherever the program starts."""
    return path.startswith("~/") or PurePosixPath(path).is_absolute()
