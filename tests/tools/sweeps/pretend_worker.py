"""A worker of a sweep whose runs only pretend: ten steps of waiting, kept in the folder of the run like a checkpoint.

python pretend_worker.py SWEEP STORAGE WORKDIR SECONDS_A_STEP GRACE_SECONDS
"""

import collections
import json
import sys
import time
from pathlib import Path

from transformer_jax.tools.sweeps.definition import load_sweep
from transformer_jax.tools.sweeps.storage import open_storage
from transformer_jax.tools.sweeps.study import SharedStudy
from transformer_jax.tools.sweeps.worker import Worker

Outcome = collections.namedtuple("Outcome", "step reason")  # as much of it as a worker reads

STEPS = 10


def pretend(config, folder, should_stop, seconds):
    """Writes metrics as a run does; goes on where the folder says that the one before stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = folder / "metrics.jsonl"
    first = len(metrics.read_text().split("\n")) if metrics.exists() else 1
    with (folder.parent.parent / "events.txt").open("a") as events:
        events.write(f"began {folder.name} at {first}\n")
    for step in range(first, STEPS + 1):
        time.sleep(seconds)
        found = {"validation/loss": abs(config.optimizer.learning_rate - 0.01) + 1 / step}
        with metrics.open("a") as file:
            file.write(json.dumps({"step": step} | found) + "\n")
        if should_stop(step, found):
            return Outcome(step, "stopped")
    with (folder.parent.parent / "events.txt").open("a") as events:
        events.write(f"ended {folder.name}\n")
    return Outcome(STEPS, "finished")


if __name__ == "__main__":
    sweep, storage, workdir, seconds, grace = sys.argv[1:]
    study = SharedStudy(load_sweep(sweep), open_storage(storage), "pretended", float(grace))

    def train(configs, folders, should_stops, on_end):
        on_end(0, pretend(configs[0], folders[0], should_stops[0], float(seconds)))

    Worker(study, Path(workdir), train).work()
