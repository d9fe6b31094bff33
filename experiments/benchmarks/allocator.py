"""What it saves, and what memory it costs, that a run on a CPU makes glibc keep freed memory (Linux only).

    python experiments/benchmarks/allocator.py --config=configs/quickstart.py --updates=200
    python experiments/benchmarks/allocator.py --config=configs/multi30k.py:tiny --data=multi30k --updates=60

The same training with and without (``TRANSFORMER_JAX_MALLOC=default``), in turn, each in a process of its own. Compiled
programs and tokenized data are cached before the first turn. Writes ``results/allocator_RECIPE.md``.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CONTESTANTS = {"memory kept": {}, "glibc's default": {"TRANSFORMER_JAX_MALLOC": "default"}}


class Turn(NamedTuple):
    """Seconds, GB and thousands of page faults of one process."""

    cpu: float
    system: float
    wall: float
    memory: float
    faults: float


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/quickstart.py")
    parser.add_argument("--data", default="", help="data.directory")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent / "results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        train(arguments, Path(folder), "first", {})
        turns: dict[str, list[Turn]] = {name: [] for name in CONTESTANTS}
        for number in range(arguments.rounds):
            for name, variables in CONTESTANTS.items():
                turns[name].append(train(arguments, Path(folder), f"{number} {name}", variables))
                print(f"round {number + 1}: {name}: {turns[name][-1]}", flush=True)
    text = table(turns, arguments)
    name = arguments.config.rpartition("/")[2].replace(".py", "").replace(":", "_")
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / f"allocator_{name}.md").write_text(text)
    print(text)


def train(arguments: argparse.Namespace, folder: Path, name: str, variables: dict[str, str]) -> Turn:
    """One training without validation."""
    settings = {
        "data.cache_directory": folder / "cache",
        "training.num_updates": arguments.updates,
        "training.evaluate_every": 0,
        "training.checkpoint_every": arguments.updates,
        "optimizer.warmup_updates": 1,
    }
    if arguments.data:
        settings["data.directory"] = arguments.data
    command = [sys.executable, "-c", "import sys; from transformer_jax.__main__ import main; sys.exit(main())", "train"]
    command += [f"--config={arguments.config}", f"--workdir={folder / name}"]
    command += [f"--config.{key}={value}" for key, value in settings.items()]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: status {status}")
    gigabytes, faults = usage.ru_maxrss / 2**20, usage.ru_minflt / 1000
    cpu = usage.ru_utime + usage.ru_stime
    return Turn(cpu, usage.ru_stime, time.perf_counter() - started, gigabytes, faults)


def table(turns: dict[str, list[Turn]], arguments: argparse.Namespace) -> str:
    """Medians, and the ratio of CPU seconds round by round."""
    lines = [
        f"`{arguments.config}`, {arguments.updates} updates, whole command, medians of {arguments.rounds}:\n",
        "| | CPU s | of it system | wall s | peak memory, GB | page faults, thousands |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, each in turns.items():
        median = Turn(*(statistics.median(column) for column in zip(*each, strict=True)))
        seconds = f"{median.cpu:.1f} | {median.system:.1f} | {median.wall:.1f}"
        lines.append(f"| {name} | {seconds} | {median.memory:.2f} | {median.faults:,.0f} |")
    kept, default = turns.values()
    ratios = [one.cpu / other.cpu for one, other in zip(kept, default, strict=True)]
    lines.append(
        f"\nCPU seconds, kept over default: {statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
