"""Do the bfloat16 hidden states of GPUs and TPUs learn as float32 does? Validation curves on
Multi30k, three seeds.

    python experiments/roofline/policy_curves.py --data=multi30k --workdir=runs/policies

Trains ``configs/multi30k.py:tiny_minutes`` with each policy and seed, one after the other, on a CPU
that computes as they would: hidden states, their gradients and the logits of the loss are bfloat16
in memory, which a CPU otherwise keeps in float32. All are evaluated in float32. Both policies of a
seed have the same first parameters and batches: the table has the mean of the differences within
seeds, with its 95 % interval.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICIES = "float32", "bfloat16"
SEEDS = 1, 2, 3


def main() -> None:
    """Starts a process for each run and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of Multi30k")
    parser.add_argument(
        "--workdir", type=Path, required=True, help="folder of the runs; those that are there are resumed"
    )
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        sys.exit(train(arguments, *arguments.train))
    for seed in SEEDS:
        for policy in POLICIES:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--train", policy, str(seed)], check=True)
    print(table(arguments.workdir))


def train(arguments: argparse.Namespace, policy: str, seed: str) -> int:
    """One run, in this process, whose CPU takes the policies of accelerators."""
    from transformer_jax.__main__ import main as command
    from transformer_jax.models import devices
    from transformer_jax.precision import POLICIES as OF_ACCELERATORS

    devices.POLICIES_ON_CPU = OF_ACCELERATORS
    settings = {
        "data.directory": arguments.data,
        "data.seed": 0,
        "seed": seed,
        "model.compute_dtype": policy,
        "training.num_updates": arguments.updates,
        "training.evaluate_every": arguments.updates // 10,
        "training.validation_sentences": 100,
    }
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    workdir = arguments.workdir / f"{policy}-{seed}"
    return command(["train", f"--config={ROOT}/configs/multi30k.py:tiny_minutes", f"--workdir={workdir}", *flags])


def table(workdir: Path) -> str:
    """Mean validation losses of both policies at each evaluation, and the mean of the paired
    differences."""
    from scipy.stats import t

    from transformer_jax.runs.metrics_log import read_metrics

    curves = {
        (policy, seed): {
            record["step"]: record["validation/loss"]
            for record in read_metrics(workdir / f"{policy}-{seed}" / "metrics.jsonl")
            if "validation/loss" in record
        }
        for policy in POLICIES
        for seed in SEEDS
    }
    lines = [
        f"| update | {' | '.join(f'{policy}, mean' for policy in POLICIES)} | difference | 95 % interval |",
        "|---:|---:|---:|---:|---:|",
    ]
    for step in curves[POLICIES[0], SEEDS[0]]:
        losses = [[curves[policy, seed][step] for seed in SEEDS] for policy in POLICIES]
        pairs = [other - first for first, other in zip(*losses, strict=True)]
        mean = statistics.mean(pairs)
        half = t.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / len(pairs) ** 0.5
        means = " | ".join(f"{statistics.mean(each):.4f}" for each in losses)
        lines.append(f"| {step:,} | {means} | {mean:+.4f} | {mean - half:+.4f} to {mean + half:+.4f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
