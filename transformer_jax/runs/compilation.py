"""Compiles the training step for the planned shapes of batches ahead of their updates."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.runs.goodput import Clock
from transformer_jax.runs.progress import LOGGER
from transformer_jax.runtime.distributed import wait_for_all
from transformer_jax.training.update import Update


class CompilationAhead:
    """Compiles ``update.jitted`` in a thread for one shape of batches after another.

    It only fills the caches of JAX: without it a call of ``update.jitted`` would compile the
    program. Tracing stays in the caller's thread, where a debugger can stop in it. The first shape
    is compiled during the dry run. Later waiting and tracing count as ``compile``.
    """

    def __init__(self, update: Update, shapes: Sequence[PyTree], clock: Clock) -> None:
        self._update, self._planned, self._clock = update, list(shapes), clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._programs: dict[tuple, Future] = {}
        self._used: set[tuple] = set()
        if self._planned and not jax.config.jax_disable_jit:
            self._compile(self._planned.pop(0))

    def wait_for(self, batch: PyTree) -> None:
        """Wait until the step for the shape of ``batch`` is compiled or has failed to compile."""
        shapes = _shapes(batch)
        if shapes in self._used or jax.config.jax_disable_jit:
            return
        with self._clock.spend("compile"):
            if shapes not in self._programs:
                others = [planned for planned in self._planned if _shapes(planned) != shapes]
                if len(others) == len(self._planned):
                    text = " and ".join(map(str, dict.fromkeys(shapes)))
                    LOGGER.info("compiling once more, for a batch with rows of shapes %s that was not planned", text)
                self._planned = others
                self._compile(batch)
            self._programs[shapes].exception()
            self._used.add(shapes)
            # Collective operations of a process that is ready earlier could time out.
            wait_for_all(f"compilation for batches {shapes}")

    def compile_next(self) -> None:
        """Trace the step for the next planned shape, and compile it in the thread."""
        if self._planned and not jax.config.jax_disable_jit:
            with self._clock.spend("compile"):
                self._compile(self._planned.pop(0))

    def close(self) -> None:
        """Cancel the compilations that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, batch: PyTree) -> None:
        lowered = self._update.lower(batch)
        self._programs[_shapes(batch)] = self._pool.submit(lowered.compile)


def _shapes(batch: PyTree) -> tuple:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
