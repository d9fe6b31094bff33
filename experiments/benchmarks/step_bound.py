"""How near does a training step come to what its program's memory traffic and products allow, on
the device that is here?

    transformer-jax calibrate --output=measured.json
    python experiments/benchmarks/step_bound.py --recipe=configs/transformer_base.py --calibration=measured.json

Compiles and runs the step of a recipe on random words and prints JSON: seconds a step (median), the
seconds that traffic and products take at the speeds measured here, and model FLOPs utilization, of
the speed measured and of the data sheet's where the device is known. ``--config.`` changes settings
of the recipe.
"""

import argparse
import json
from pathlib import Path

from step_cost import recipe_here, step_cost

from transformer_jax.tools.preflight.calibration import Calibration, load_calibration
from transformer_jax.tools.preflight.chips import CHIPS
from transformer_jax.tools.preflight.compiled_program import batch_size


def main() -> None:
    """Prints what one step takes, and what it might."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    arguments, overrides = parser.parse_known_args()
    import jax

    config = recipe_here(arguments.recipe, overrides)
    cost = step_cost(config, *batch_size(config), arguments.steps)
    cost["losses"] = [cost["losses"][0], cost["losses"][-1]]
    measured = load_calibration(arguments.calibration)
    print(json.dumps(cost | bounds(cost, measured, config.model.compute_dtype, len(jax.devices()))))


def bounds(cost: dict, measured: Calibration, compute_dtype: str, devices: int) -> dict:
    """Seconds that traffic and products take at full speed, and the share of the speed that the
    step makes use of."""
    measured_peak, operations = measured.matmul_flops[compute_dtype], cost["flops"] / devices
    used, memory, compute = (
        operations / cost["seconds"],
        cost["traffic"] / measured.memory_bandwidth,
        operations / measured_peak,
    )
    sheet = next((chip for key, chip in CHIPS.items() if key in measured.device.lower()), None)
    return {
        "memory_seconds": memory,
        "compute_seconds": compute,
        "share_of_bound": max(memory, compute) / cost["seconds"],
        "mfu_of_measured": used / measured_peak,
        "mfu": used / sheet.peak(compute_dtype) if sheet else None,
        "device": measured.device,
    }


if __name__ == "__main__":
    main()
