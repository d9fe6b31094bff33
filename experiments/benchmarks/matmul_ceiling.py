"""How fast this machine multiplies matrices: the ceiling that the speed of training is measured
against.

python experiments/benchmarks/matmul_ceiling.py
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Rows x inner x columns: one square, and products of the Transformer's own kind (feed-forward,
# logits).
SHAPES = ((2048, 2048, 2048), (4096, 256, 1024), (4096, 1024, 256), (4096, 256, 8000))
# What it takes to fill a large accelerator.
LARGE_SHAPES = ((8192, 8192, 8192), (16384, 4096, 4096))
REPEATS = 7
JAX_PLATFORMS = {"cpu": "cpu", "gpu": "cuda"}
KINDS = ("jax float32", "jax bfloat16", "torch float32", "torch bfloat16")


def jax_gflops(operands: str, shapes: tuple[tuple[int, int, int], ...] = SHAPES, repeats: int = REPEATS) -> dict:
    """10^9 operations a second of each shape, median of repeats; operands of this dtype, float32
    result."""
    import jax
    import jax.numpy as jnp

    multiply = jax.jit(lambda left, right: jnp.matmul(left, right, preferred_element_type=jnp.float32))

    def product(rows: int, inner: int, columns: int) -> Callable[[], object]:
        left, right = jnp.ones((rows, inner), operands), jnp.ones((inner, columns), operands)
        return lambda: jax.block_until_ready(multiply(left, right))

    return _gflops(product, shapes, repeats)


def torch_gflops(
    operands: str, shapes: tuple[tuple[int, int, int], ...] = SHAPES, device: str = "cpu", repeats: int = REPEATS
) -> dict:
    """The same of PyTorch, whose results have the operands' dtype, into memory that is already
    there."""
    import torch

    place = {
        "dtype": {"float32": torch.float32, "bfloat16": torch.bfloat16}[operands],
        "device": {"cpu": "cpu", "gpu": "cuda"}[device],
    }

    def product(rows: int, inner: int, columns: int) -> Callable[[], object]:
        left, right = torch.ones(rows, inner, **place), torch.ones(inner, columns, **place)
        result = torch.empty(rows, columns, **place)

        def multiply() -> None:
            torch.mm(left, right, out=result)
            if device == "gpu":
                torch.cuda.synchronize()

        return multiply

    return _gflops(product, shapes, repeats)


def _gflops(product: Callable[[int, int, int], Callable[[], object]], shapes: tuple, repeats: int) -> dict:
    rates = {}
    for shape in shapes:
        multiply = product(*shape)
        multiply()
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            multiply()
            seconds.append(time.perf_counter() - began)
        rates["x".join(map(str, shape))] = 2e-9 * shape[0] * shape[1] * shape[2] / statistics.median(seconds)
    return rates


def measure_ceilings(threads: int, kinds: Sequence[str] = KINDS, device: str = "cpu") -> dict:
    """Each kind in a process of its own: {kind: {"best": GFLOP/s, "shapes": {shape: GFLOP/s}}}."""
    ceilings = {}
    for kind in kinds:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            f"--only={kind}",
            f"--threads={threads}",
            f"--device={device}",
        ]
        environment = os.environ | {"JAX_PLATFORMS": JAX_PLATFORMS[device]}
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        rates = json.loads(found.stdout)
        ceilings[kind] = {"best": max(rates.values()), "shapes": rates}
    return ceilings


def main() -> None:
    """Prints the ceilings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    arguments = parser.parse_args()
    if not arguments.only:
        print(json.dumps(measure_ceilings(arguments.threads, device=arguments.device), indent=2))
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    library, dtype = arguments.only.split()
    if library == "torch":
        import torch

        torch.set_num_threads(arguments.threads)
    shapes = SHAPES + LARGE_SHAPES if arguments.device == "gpu" else SHAPES
    found = torch_gflops(dtype, shapes, arguments.device) if library == "torch" else jax_gflops(dtype, shapes)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
