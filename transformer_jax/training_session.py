"""From settings and a folder to a trained model: the steps around the loop."""

import sys
import time

from transformer_jax.config import ExperimentConfig, to_json
from transformer_jax.jax_runtime import start_jax
from transformer_jax.loop import Outcome, Trainer, TrainingDiverged
from transformer_jax.run_directory import RunDirectory, write_json
from transformer_jax.tasks.translation import TranslationTask, tokenizers_for_training, write_data_report
from transformer_jax.training.sharding import make_mesh


def train(config: ExperimentConfig, workdir: str) -> int:
    """Trains, and says where the result is; the exit status of the command.

    Raises ConfigError and DataError before any time is spent.
    """
    started = time.monotonic()
    start_jax(config.data.cache_directory)
    run = RunDirectory(workdir)
    run.path.mkdir(parents=True, exist_ok=True)
    mesh = make_mesh(config.mesh)
    tokenizers = tokenizers_for_training(config, run)
    task = TranslationTask(config, tokenizers, mesh)
    print(f"{task.training_store.statistics.table()}\n{task.plan.table()}", file=sys.stderr)
    write_json(run.config, to_json(config))
    write_data_report(task, run)
    identity = {"config": to_json(config), "tokenizers": tokenizers.target.fingerprint()}
    try:
        outcome = Trainer(config, run, task, mesh, identity).train()
    except TrainingDiverged as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(outcome, run, time.monotonic() - started))
    return 0


def summary(outcome: Outcome, run: RunDirectory, seconds: float) -> str:
    """What happened, where the run is, what to try next."""
    best = "" if outcome.best_bleu is None else f", best validation BLEU {outcome.best_bleu:.2f}"
    reason = {
        "finished": "finished",
        "patience": "stopped: validation BLEU no longer improved",
        "interrupted": "interrupted, everything is saved: the same command goes on from here",
    }[outcome.reason]
    return (
        f"{reason} at update {outcome.step}{best}, {seconds / 60:.1f} minutes; run directory {run.path}\n"
        f"  transformer-jax evaluate --workdir={run.path} --split=test\n"
        f"  transformer-jax translate --workdir={run.path} < input.txt"
    )
