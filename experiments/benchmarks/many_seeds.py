"""Eight seeds of one recipe: trained at once as one program, one after another in one process, or by one command each.

    python experiments/benchmarks/many_seeds.py --data=multi30k

Every contestant trains the same seeds for the same updates, with one validation at the end, in processes of its own and with an
empty compilation cache; the data are tokenized beforehand. What counts is the time from the command to the end of the last
training. ``at once, 2 devices`` gives every core a device, and each half of the models.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stopwatch import limit_cores
from training_speed import describe_machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONTESTANTS = ("at once", "at once, 2 devices", "one after another", "a command each")


def main() -> None:
    """Lets the contestants take turns, and writes what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the recipe's corpus")
    parser.add_argument("--config", default=f"{ROOT / 'configs' / 'multi30k.py'}:tiny_hour", help="recipe")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="cores that a contestant may use")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--be", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        contend(arguments)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as scratch:
        tokenized = Path(scratch) / "tokenized"
        seconds_of(arguments, "one after another", tokenized, seeds=1, updates=2)
        rounds = [{name: turn(arguments, name, tokenized) for name in CONTESTANTS} for _ in range(arguments.rounds)]
    result = {name: vars(arguments)[name] for name in ("seeds", "updates", "threads")} | {"seconds": rounds}
    result |= {"config": Path(arguments.config).name, "machine": machine}
    (arguments.output / "many_seeds.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.output / "many_seeds.md").write_text(table(rounds))
    print(table(rounds))


def turn(arguments: argparse.Namespace, name: str, tokenized: Path) -> float:
    """Seconds of one contestant, who finds the data tokenized and nothing compiled."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(tokenized, f"{folder}/work", ignore=shutil.ignore_patterns("compiled"))
        each = arguments.seeds if name != "a command each" else 1
        starts = range(0, arguments.seeds, each)
        return sum(
            seconds_of(arguments, name, Path(folder) / "work", each, arguments.updates, first) for first in starts
        )


def seconds_of(
    arguments: argparse.Namespace, name: str, folder: Path, seeds: int, updates: int, first: int = 0
) -> float:
    """Seconds of one process."""
    command = [sys.executable, __file__, f"--data={arguments.data}", f"--config={arguments.config}", f"--be={name}"]
    command += [f"--seeds={seeds}", f"--updates={updates}", f"--threads={arguments.threads}", f"--folder={folder}"]
    flags = "--xla_force_host_platform_device_count=2" if "2 devices" in name else ""
    began = time.perf_counter()
    subprocess.run([*command, f"--first={first}"], check=True, env={**os.environ, "XLA_FLAGS": flags})
    return time.perf_counter() - began


def contend(arguments: argparse.Namespace) -> None:
    """Trains the seeds, as the name says."""
    limit_cores(arguments.threads)
    from transformer_jax.config import resolve
    from transformer_jax.runs.shared_programs import SharedPrograms
    from transformer_jax.runs.train import run_training, train_vectorized

    first, updates = arguments.first, arguments.updates
    settings = {
        "data.directory": arguments.data,
        "data.cache_directory": arguments.folder / "cache",
        "data.seed": 0,
        "training.num_updates": updates,
        "optimizer.warmup_updates": 1,
        "training.evaluate_every": updates,
        "training.validation_sentences": 32,
        "training.checkpoint_every": updates,
    }
    overrides = [(key, str(value)) for key, value in settings.items()]
    configs = [
        resolve(arguments.config, [*overrides, ("seed", str(seed))]) for seed in range(first, first + arguments.seeds)
    ]
    folders = [arguments.folder / f"{arguments.be} {config.seed} {updates}" for config in configs]
    shared = SharedPrograms()
    if arguments.be.startswith("at once"):
        train_vectorized(configs, folders, [lambda step, found: False] * len(configs), shared)
        return
    for config, folder in zip(configs, folders, strict=True):
        run_training(config, folder, shared=shared)


def table(rounds: list[dict[str, float]]) -> str:
    """Median, least and most; and how many times as fast as a command each, round by round."""
    lines = ["| | seconds | least to most | times as fast as a command each |", "|---|---:|---:|---:|"]
    for name in CONTESTANTS:
        seconds = [each[name] for each in rounds]
        faster = statistics.median(each[CONTESTANTS[-1]] / each[name] for each in rounds)
        lines.append(
            f"| {name} | {statistics.median(seconds):.0f} | {min(seconds):.0f} to {max(seconds):.0f} | {faster:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
