"""How long do a step and a whole search of a randomly initialized model take, and how long does
their memory traffic?

    python experiments/benchmarks/decoding_bound.py --recipe=configs/transformer_base.py --calibration=measured.json

Decodes one full batch of random inputs of ``--length`` tokens, each step a call, with a capacity
that grows as in ``translate``. Prints JSON: the seconds of reading the inputs, of a step at each
capacity (median of ``--steps``), of all steps of the longest search if each takes that long, and
for each capacity the seconds that its traffic takes at the speed measured here.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from step_cost import recipe_here

from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.tools.preflight.calibration import load_calibration
from transformer_jax.tools.preflight.memory_traffic import traffic_by_kind
from transformer_jax.training.sharding import make_mesh


def main() -> None:
    """Prints what one search takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=16, help="timed steps in a room")
    arguments, overrides = parser.parse_known_args()
    import jax
    import numpy as np

    config = recipe_here(arguments.recipe, overrides)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    objective = objective_of(config, mesh)
    decoding = task_class(config.task).decoding(config, objective, arguments.length, mesh)
    ids = np.random.default_rng(0).integers(4, config.tokenizer.vocabulary_size, decoding.inputs.shape).astype(np.int32)
    params = jax.jit(objective.init_params)(jax.random.key(0))
    start, step = jax.jit(decoding.start, static_argnums=2), jax.jit(decoding.step, donate_argnums=1)
    bandwidth = load_calibration(arguments.calibration).memory_bandwidth
    rooms = []
    for room, tokens in decoding.capacities:
        state = start(params, ids, room)
        compiled = step.lower(params, state).compile()
        state = jax.block_until_ready(compiled(params, state))
        seconds = []
        for _ in range(arguments.steps):
            began = time.perf_counter()
            state = jax.block_until_ready(compiled(params, state))
            seconds.append(time.perf_counter() - began)
        traffic = sum(traffic_by_kind(compiled.as_text() or "").values())
        row = {"room": room, "tokens": tokens, "step_seconds": statistics.median(seconds), "traffic": traffic}
        rooms.append(row | {"memory_seconds": traffic / bandwidth})
    began = time.perf_counter()
    jax.block_until_ready(start(params, ids, decoding.capacities[0][0]))
    all_seconds = sum(row["tokens"] * row["step_seconds"] for row in rooms)
    result = {"rows": decoding.rows, "beam_width": decoding.beam_width, "start_seconds": time.perf_counter() - began}
    print(
        json.dumps(
            result | {"steps_seconds": all_seconds, "rows_per_second": decoding.rows / all_seconds, "rooms": rooms}
        )
    )


if __name__ == "__main__":
    main()
