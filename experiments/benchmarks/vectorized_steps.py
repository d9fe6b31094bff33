"""Several runs in one program: updates a second of all of them, against one run alone.

    python experiments/benchmarks/vectorized_steps.py --recipe=configs/multi30k.py:tiny --counts=1,2,4,8

One random batch on one device. Prints JSON: seconds an update (median) and run-updates a second for each number of runs.
"""

import argparse
import json
import statistics
import time

from step_cost import random_batch, recipe_here, update_of

from transformer_jax.config import hyperparameters_of
from transformer_jax.tools.preflight.program import batch_size
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.vectorized import vectorized


def main() -> None:
    """Prints the times for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--counts", default="1,2,4,8")
    parser.add_argument("--steps", type=int, default=20)
    arguments, overrides = parser.parse_known_args()
    import jax

    config = recipe_here(arguments.recipe, overrides)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    update = update_of(config, mesh)
    rows = []
    for count in map(int, arguments.counts.split(",")):
        runs = vectorized(update, count)
        state = runs.join([update.initial_state(seed) for seed in range(count)])
        hyperparameters = runs.put_hyperparameters([hyperparameters_of(config)] * count)
        batch = runs.put_batch(random_batch(config, *batch_size(config)))
        step = runs.lower(batch).compile()
        state, _ = jax.block_until_ready(step(state, batch, hyperparameters))
        seconds = []
        for _ in range(arguments.steps):
            began = time.perf_counter()
            state, _ = jax.block_until_ready(step(state, batch, hyperparameters))
            seconds.append(time.perf_counter() - began)
        median = statistics.median(seconds)
        rows.append({"runs": count, "seconds": median, "run_updates_per_second": count / median})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
