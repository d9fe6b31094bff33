"""What the tests of the launchers launch."""

from transformer_jax.config import ExperimentConfig, from_dict
from transformer_jax.tools.launching import Evaluation, Sweep, Tokenizing, Training

AWKWARD = "it's $(here) $$"


def training(
    *flags: str,
    rows: int = 64,
    workdir: str = "/shared/runs/base",
    shards: int = 0,
    followers: tuple[Sweep | Evaluation, ...] = (),
    **mesh: int,
) -> Training:
    config: ExperimentConfig = from_dict(
        {"batching": {"row_multiple": rows, "tokens_per_update": rows * 256}, "mesh": mesh}
    )
    tokenizing = tokens(shards) if shards else None
    return Training(("train", "--config=a.py", f"--workdir={workdir}", *flags), workdir, config, tokenizing, followers)


def tokens(shards: int, store: str = f"/shared/{AWKWARD}") -> Tokenizing:
    return Tokenizing(("--config=a.py", f"--output={store}"), shards, store)


def watch(workdir: str = "/shared/runs/base") -> Evaluation:
    return Evaluation(("evaluate", "--watch", f"--workdir={workdir}"), workdir, is_beside=True)


def sweep(workers: int = 3, workdir: str = "/shared/sweep", has_database: bool = False) -> Sweep:
    return Sweep("sweep.py", workdir, workers, has_database=has_database)
