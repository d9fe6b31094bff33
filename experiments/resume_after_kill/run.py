"""Does a run that is killed with ``kill -9`` end with the same parameters as one that is not?

    python experiments/resume_after_kill/run.py --kills=5

Trains the quickstart recipe, shortened, twice: once undisturbed, once killed ``--kills`` times at random moments and started
again each time. Prints where it was killed, and whether all parameters and logged
losses are equal to the bit; exit status 1 if they are not.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from transformer_jax.config import load_run_config
from transformer_jax.runs.run_directory import ChosenRun
from transformer_jax.tasks.trained_run import open_trained

ROOT = Path(__file__).resolve().parents[2]
OF_THE_HOST = re.compile("per_second|^host/")
# Short enough to repeat, with a checkpoint so seldom that most kills cost updates.
SETTINGS = {
    "training.num_updates": 240,
    "training.evaluate_every": 120,
    "training.checkpoint_every": 20,
    "training.log_every": 1,
    "training.validation_sentences": 16,
    "data.generated_pairs": 4000,
    "tokenizer.vocabulary_size": 1000,
    "batching.tokens_per_update": 512,
    "mesh.data": 1,
}


def command(workdir: Path) -> list[str]:
    """The training of the experiment."""
    overrides = [f"--config.{key}={value}" for key, value in SETTINGS.items()]
    recipe = ROOT / "configs" / "quickstart.py"
    return [sys.executable, "-m", "transformer_jax", "train", f"--config={recipe}", f"--workdir={workdir}", *overrides]


def records(workdir: Path) -> list[dict]:
    """What was logged, but how fast, and the memory and the disk of the host."""
    file = workdir / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    parsed = [json.loads(line) for line in lines if line.endswith("}")]
    return [{key: value for key, value in record.items() if not OF_THE_HOST.search(key)} for record in parsed]


def train_with_kills(workdir: Path, kills: int, rng: random.Random) -> None:
    """Trains to the end, killed ``kills`` times, each as soon as the log has reached another random update."""
    for moment in sorted(rng.sample(range(1, SETTINGS["training.num_updates"]), kills)):
        process = subprocess.Popen(command(workdir), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (last_update(workdir) < moment):
            time.sleep(0.005)
        status = "already finished" if process.poll() is not None else f"at update {last_update(workdir)}"
        process.kill()
        process.wait()
        print(f"killed {status}", flush=True)
    subprocess.run(command(workdir), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def last_update(workdir: Path) -> int:
    """The last update in the log."""
    found = records(workdir)
    return found[-1]["step"] if found else 0


def parameters(workdir: Path) -> list[np.ndarray]:
    """The parameters after the last update."""
    return jax.tree.leaves(
        jax.device_get(open_trained(ChosenRun(str(workdir), load_run_config(workdir), "last")).params)
    )


def main() -> int:
    """Runs the experiment; 1 when the two runs differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder) / "undisturbed", Path(folder) / "killed"
        started = time.monotonic()
        subprocess.run(command(undisturbed), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        print(f"undisturbed: {seconds:.0f} s", flush=True)
        train_with_kills(killed, arguments.kills, random.Random(arguments.seed))
        leaves = list(zip(parameters(undisturbed), parameters(killed), strict=True))
        same_parameters = all(np.array_equal(left, right) for left, right in leaves)
        same_log = records(undisturbed) == records(killed)
    print(f"parameters: {len(leaves)} arrays, {'equal to the bit' if same_parameters else 'DIFFERENT'}")
    print(f"logged losses: {'equal to the bit' if same_log else 'DIFFERENT'}")
    return 0 if same_parameters and same_log else 1


if __name__ == "__main__":
    sys.exit(main())
