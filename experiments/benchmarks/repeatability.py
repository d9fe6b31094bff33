"""Are two trainings bit for bit the same on this device, and is a resumed one the same as one that
was never stopped?

    XLA_FLAGS=--xla_gpu_deterministic_ops=true python experiments/benchmarks/repeatability.py \\
        --recipe=configs/transformer_base.py

Trains on one random batch three times from one seed: twice for ``--updates`` updates, once with the
state written to a checkpoint half way and restored. Prints JSON: whether losses and parameters are
equal, and how far parameters differ.
"""

import argparse
import json
import tempfile
from pathlib import Path

from step_cost import random_batch, recipe_here, update_of

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import hyperparameters_of
from transformer_jax.tools.preflight.compiled_program import batch_size
from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
from transformer_jax.training.state import TrainState


def main() -> None:
    """Prints what is equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--updates", type=int, default=10)
    arguments, overrides = parser.parse_known_args()
    import jax
    import jax.numpy as jnp

    config = recipe_here(arguments.recipe, overrides)
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    update = update_of(config, mesh)
    batch = put_batch(random_batch(config, *batch_size(config)), mesh)
    step, hyperparameters = update.lower(batch).compile(), put_hyperparameters(hyperparameters_of(config), mesh)

    def trained(state: TrainState, updates: int) -> tuple[TrainState, list[float]]:
        losses = []
        for _ in range(updates):
            state, metrics = step(state, batch, hyperparameters)
            losses.append(float(metrics.sums.loss))
        return state, losses

    half = arguments.updates // 2
    once, losses = trained(update.initial_state(config.seed), arguments.updates)
    again, losses_again = trained(update.initial_state(config.seed), arguments.updates)
    stopped, _ = trained(update.initial_state(config.seed), half)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoints")
        checkpoints.save(stopped, {})
        checkpoints.wait()
        restored, _ = checkpoints.restore(half, update.state_shapes)
        checkpoints.close()
    resumed, losses_resumed = trained(restored, arguments.updates - half)

    def difference(one: TrainState, other: TrainState) -> float:
        pairs = zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True)
        return max(float(jnp.abs(left - right).max()) for left, right in pairs)

    print(
        json.dumps(
            {
                "repeated_losses_equal": losses == losses_again,
                "repeated_difference": difference(once, again),
                "resumed_losses_equal": losses[half:] == losses_resumed,
                "resumed_difference": difference(once, resumed),
                "losses": [losses[0], losses[-1]],
            }
        )
    )


if __name__ == "__main__":
    main()
