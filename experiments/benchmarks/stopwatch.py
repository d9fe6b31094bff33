"""The same clock for every contestant: a first step, a warm-up of every shape, then steps that are
timed one by one."""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from workload import (
    Workload,
    load,
    one_of_each_shape,
    padded_flops,
    shape_of,
    target_tokens,
    useful_flops,
)

from transformer_jax.sequence_types import Batch

Step = Callable[[Batch], float]
"""Makes one update and returns the loss per token; only then is the update complete."""


class Arguments(NamedTuple):
    """What the comparison tells a contestant."""

    workload: Workload
    steps: int
    threads: int
    started: float
    output: Path
    options: argparse.Namespace


def parse_arguments(*extra: tuple[str, dict]) -> Arguments:
    """Reads the command line of a contestant; ``extra`` are its own options (name, keywords of
    ``add_argument``)."""
    parser = argparse.ArgumentParser()
    for name in ("recorded", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--started", type=float, required=True, help="when the command was given, seconds since 1970")
    for name, keywords in extra:
        parser.add_argument(name, **keywords)
    options = parser.parse_args()
    workload = load(Path(options.recorded))
    return Arguments(workload, options.steps, options.threads, options.started, Path(options.output), options)


def limit_cores(threads: int) -> None:
    """Leaves this process ``threads`` cores; XLA makes as many threads as it may use cores. Call
    before importing JAX."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def time_steps(step: Step, arguments: Arguments) -> None:
    """Runs ``step`` on the recorded batches and writes what was measured, JSON, to
    ``arguments.output``."""
    batches, model = arguments.workload.batches, arguments.workload.config.model
    began = time.perf_counter()
    step(batches[0])
    first_step_seconds = time.perf_counter() - began
    seconds_from_command = time.time() - arguments.started
    for _ in range(2):
        for batch in one_of_each_shape(batches):
            step(batch)
    warm_up_seconds = time.perf_counter() - began
    steps = []
    for index in range(arguments.steps):
        batch = batches[index % len(batches)]
        began = time.perf_counter()
        loss = step(batch)
        seconds = time.perf_counter() - began
        steps.append(
            {
                "shape": shape_of(batch),
                "seconds": seconds,
                "target_tokens": target_tokens(batch),
                "useful_flops": useful_flops(batch, model, arguments.workload.vocabulary_size),
                "padded_flops": padded_flops(batch, model, arguments.workload.vocabulary_size),
                "loss": loss,
            }
        )
    measured = {
        "first_step_seconds": first_step_seconds,
        "seconds_from_command_to_first_step": seconds_from_command,
        "warm_up_seconds": warm_up_seconds,
        "steps": steps,
    }
    arguments.output.write_text(json.dumps(measured) + "\n")
