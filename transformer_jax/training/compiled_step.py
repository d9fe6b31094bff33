"""The training step compiled for every shape of batch, in the background and ahead of need."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepFunction, StepMetrics, compile_train_step


class CompiledStep:
    """A step that is compiled once a shape: the shapes are known beforehand, and compiling needs no data.

    Compilation starts with the object, in a thread of its own and in the order given, while the caller still reads data and
    rehearses; a call waits for its own shape and no other.
    """

    def __init__(self, step: StepFunction, state: TrainState, mesh: Mesh, batches: Iterable[PyTree]) -> None:
        jitted = compile_train_step(step, state, mesh)
        shapes = jax.eval_shape(lambda: state)

        def compiled(batch: PyTree) -> jax.stages.Compiled:
            return jitted.lower(shapes, batch).compile()

        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._compiled: dict[tuple, Future] = {_key(batch): self._pool.submit(compiled, batch) for batch in batches}

    def __call__(self, state: TrainState, batch: PyTree) -> tuple[TrainState, StepMetrics]:
        """One update; raises KeyError for a batch of a shape that was not announced."""
        return self._compiled[_key(batch)].result()(state, batch)

    def close(self) -> None:
        """Gives up what is not compiled yet."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _key(batch: PyTree) -> tuple:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
