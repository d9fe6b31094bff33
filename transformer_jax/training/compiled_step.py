"""The training step compiled for every shape of batch, in the background and ahead of need."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.training.step import StepFunction

Programs = dict[tuple, Future]
"""Compiled steps, or those to come, by the shapes of the batch."""


class CompiledStep:
    """A step that is compiled once a shape: the shapes of ``batches`` suffice, compiling needs no data.

    The first of ``batches`` is compiled from the start, in a thread of its own, while the caller still reads data and
    rehearses; the others in their order once the first is in use, so that nothing keeps the first update waiting. What is
    among ``programs`` is not compiled again; what is compiled stays there.
    """

    def __init__(
        self, lower: Callable[[PyTree], jax.stages.Lowered], batches: Sequence[PyTree], programs: Programs
    ) -> None:
        self._lower = lower
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._later = list(batches[1:])
        self._programs = programs
        self._submit(batches[0])

    def for_batch(self, batch: PyTree) -> StepFunction:
        """The step for batches like this one, waiting for it if need be; one that was not announced is compiled now."""
        program = self._submit(batch).result()
        while self._later:
            self._submit(self._later.pop(0))
        return program

    def is_announced(self, batch: PyTree) -> bool:
        """Whether batches like this one were among those that were to come, or came before."""
        return _key(batch) in self._programs or any(_key(batch) == _key(shape) for shape in self._later)

    def is_ready(self, batch: PyTree) -> bool:
        """Whether ``for_batch`` would return at once."""
        future = self._programs.get(_key(batch))
        return future is not None and future.done()

    def close(self) -> None:
        """Gives up what is not compiled yet; what is being compiled is finished, for whoever comes next."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for key, future in list(self._programs.items()):
            if future.cancelled() or (future.done() and future.exception()):
                del self._programs[key]

    def _submit(self, batch: PyTree) -> Future:
        if _key(batch) not in self._programs:
            self._programs[_key(batch)] = self._pool.submit(lambda: self._lower(batch).compile())
        return self._programs[_key(batch)]


def _key(batch: PyTree) -> tuple:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
