"""Workloads: a run of several processes, or the workers of a sweep, each on its own."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.optimization import mesh_sizes, require_rows_divide
from transformer_jax.config.secrets import masked, require_address, secrets_in

PROGRAM = "transformer-jax"
STORAGE_VARIABLE = "TRANSFORMER_JAX_SWEEP_STORAGE"
"""Environment variable of a worker with the address of its study, which may hold a password."""
DISTRIBUTED_FLAGS = ("--distributed", "--nodistributed")


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
    """A study that ``workers`` processes share, each on its own devices; ``flags``: more of the command's.

    Without ``storage`` the study lies in the ``workdir``, so that must be on a disk that all see, or where the environment of
    the workers says (``storage_is_in_environment``).
    """

    file: str
    workdir: str
    storage: str
    workers: int
    flags: tuple[str, ...] = ()
    storage_is_in_environment: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"--workers: {self.workers} must be at least 1")
        require_address("--storage", self.storage)
        if self.workers > 1 and not self.storage_is_in_environment:
            require_shared_storage(self.storage or self.workdir)

    @property
    def has_secret(self) -> bool:
        """Whether the command of a worker holds a password."""
        return bool(secrets_in(self.storage))

    def require_no_secret(self) -> None:
        """Raises ConfigError where a script of this workload would hold a password."""
        if self.has_secret:
            raise ConfigError(
                f"--storage: {masked(self.storage)} has a password, which would stand in the script and in the process list of "
                f"every host; leave --storage out and set {STORAGE_VARIABLE} for the workers and here, or allow it with "
                "--write_secrets"
            )

    def command(self) -> list[str]:
        """The command of one worker."""
        storage = [f"--storage={self.storage}"] if self.storage else []
        where = f"--workdir={self.workdir}"
        return [PROGRAM, "sweep", f"--sweep={self.file}", where, *storage, *self.flags, "--workers=1"]


def storage_path(storage: str) -> str | None:
    """The file of a journal storage, written as its path; None for the address of a database."""
    return None if "://" in storage else storage


def require_shared_storage(storage: str) -> None:
    """Raises ConfigError unless workers on several machines can share the study; an address that is none fails in the sweep."""
    path = storage_path(storage)
    if path is not None and not is_absolute(path):
        raise ConfigError(
            f"--storage: {path!r} is not an absolute path; workers on several machines share a study through "
            "--storage=postgresql+psycopg://USER:PASSWORD@HOST/NAME (or mysql+pymysql), or through a file on a disk that all "
            "see, --storage=/shared/sweeps/study.journal or one in an absolute --workdir"
        )


def shared_cache(workdir: str) -> str | None:
    """The folder ``cache`` beside a run, which all its machines see as they see the run; None for a relative path."""
    parent = workdir.rstrip("/").rpartition("/")[0]
    return f"{parent}/cache" if is_absolute(workdir) and parent not in ("", "~") and not parent.endswith("/") else None


def is_absolute(path: str) -> bool:
    """Whether a path on the machines of the launch means the same wherever the program starts."""
    return path.startswith("~/") or PurePosixPath(path).is_absolute()
