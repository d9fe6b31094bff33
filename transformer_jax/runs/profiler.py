"""A trace of a few updates, for TensorBoard and Perfetto."""

from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError


class ProfiledSteps(NamedTuple):
    """Updates ``first`` to ``last``, counted from 1, both inside."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "ProfiledSteps":
        """From ``A:B``. Raises ConfigError when it is not two numbers in order."""
        first, colon, last = text.partition(":")
        if not (colon and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last)):
            raise ConfigError(f"--profile_steps: {text!r} is not A:B with 0 < A <= B, as 20:24")
        return cls(int(first), int(last))


class Profiler:
    """Traces the given updates, if any, into ``folder``; a context manager, so that a trace ends with the run."""

    def __init__(self, steps: ProfiledSteps | None, folder: Path) -> None:
        self._steps, self._folder = steps, folder
        self._is_tracing = False

    def before(self, step: int) -> None:
        """Starts the trace if it is due; call before update ``step`` is dispatched or, the first of its shape, compiled."""
        if self._steps and not self._is_tracing and step == self._steps.first:
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._is_tracing = True

    def after(self, step: int, metrics: PyTree) -> None:
        """Ends the trace after its last update, which it waits for; call after update ``step`` was dispatched."""
        if self._is_tracing and self._steps is not None and step == self._steps.last:
            jax.block_until_ready(metrics)
            self.stop()

    def stop(self) -> None:
        """Ends a running trace."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
