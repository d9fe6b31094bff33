"""The parameters of a trained run, restored onto the devices of a mesh."""

from collections.abc import Callable
from contextlib import closing

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.selection import steps_to_average
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runtime.distributed import from_first
from transformer_jax.training.sharding import placed_shapes


def restored_params(
    run: RunDirectory, init_params: Callable[[Array], PyTree], mesh: Mesh, checkpoint: str, average: int
) -> tuple[PyTree, list[int]]:
    """The mean parameters of the last ``average`` checkpoints up to ``checkpoint``, and the steps they come from.

    Raises CheckpointError when there is no such checkpoint, or too few to average.
    """
    like = placed_shapes(jax.eval_shape(init_params, jax.random.key(0)), mesh)
    # Of several processes one looks: a run may be adding checkpoints.
    steps = from_first(lambda: steps_to_average(run, checkpoint, average))
    with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
        return checkpoints.restore_average(steps, like), steps
