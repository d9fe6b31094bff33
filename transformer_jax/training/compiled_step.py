"""The training step compiled for every shape of batch, in the background and ahead of need."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.training.step import StepFunction


class CompiledStep:
    """A step that is compiled once a shape: the shapes of ``batches`` suffice, compiling needs no data.

    The first of ``batches`` is compiled from the start, in a separate thread, while the caller still reads data and
    makes its dry run; the others in their order once the first is in use, so that nothing keeps the first update waiting.
    A shape that the same ``lower`` was asked for before, for other runs, is compiled already: JAX keeps its program.
    """

    def __init__(self, lower: Callable[[PyTree], jax.stages.Lowered], batches: Sequence[PyTree]) -> None:
        self._lower = lower
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._later = list(batches[1:])
        self._compiled = {_key(batches[0]): self._submit(batches[0])}

    def for_batch(self, batch: PyTree) -> StepFunction:
        """The step for batches like this one; waits for its compilation. An unplanned shape is compiled now."""
        later, self._later = self._later, []
        first = self._compiled.get(_key(batch))
        if first is not None:
            first.result()
        self._compiled |= {_key(shape): self._submit(shape) for shape in later}
        if _key(batch) not in self._compiled:
            self._compiled[_key(batch)] = self._submit(batch)
        return self._compiled[_key(batch)].result()

    def is_planned(self, batch: PyTree) -> bool:
        """Whether the shape of this batch was planned, or compiled before."""
        return _key(batch) in self._compiled or any(_key(batch) == _key(shape) for shape in self._later)

    def is_ready(self, batch: PyTree) -> bool:
        """Whether ``for_batch`` would return at once."""
        future = self._compiled.get(_key(batch))
        return future is not None and future.done()

    def close(self) -> None:
        """Cancels the compilations that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, batch: PyTree) -> Future:
        return self._pool.submit(lambda: self._lower(batch).compile())


def _key(batch: PyTree) -> tuple:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
