"""A new run directory from the mean of several checkpoints (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import jax
import numpy as np

from transformer_jax.checkpoints.manager import Checkpoints, on_host
from transformer_jax.checkpoints.selection import chosen_step, steps_to_average
from transformer_jax.config import ConfigError, load_run_config
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.runs.written_run import write_run_directory
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.tasks.run_tokenizers import tokenizers_of_run


def write_average(source: RunDirectory, steps: Sequence[int], output: str) -> RunDirectory:
    """Writes a run directory whose only checkpoint has the mean of the parameters of ``steps`` of ``source``.

    It has the newest step's number, settings, counters and tokenizers, and no optimizer state: the moments of one point say
    nothing about another. So it can be evaluated, and be the beginning of a new run, but no run resumes from it.
    Raises ConfigError when ``output`` is not empty, CheckpointError when a checkpoint cannot be read.
    """
    if any(Path(output).expanduser().glob("*")):
        raise ConfigError(f"--output: {output} is not empty; give a folder for the new run")
    config = load_run_config(source.path)
    tokenizers = tokenizers_of_run(source)
    with closing(Checkpoints(source.checkpoints, read_only=True)) as checkpoints:
        like = on_host(checkpoints.shapes(steps[-1]))
        params = jax.tree.map(np.asarray, checkpoints.restore_average(steps, like))
        progress = checkpoints.progress(steps[-1]) | {"average_of": list(steps)}
    folder = require_writable(output, "--output")
    origin = {"run": str(source.path.absolute()), "steps": list(steps)}
    return write_run_directory(folder, config, tokenizers, steps[-1], params, progress, average_of=origin)


def chosen_steps(run: RunDirectory, count: int, which: str, stated: Sequence[str]) -> list[int]:
    """The steps to average: those ``stated``, or else the ``count`` newest up to ``which``; oldest first.

    Raises ConfigError when one is stated twice, CheckpointError when one is not there or there are too few.
    """
    if not stated:
        return steps_to_average(run, which, count)
    steps = sorted(chosen_step(run, text.strip()) for text in stated)
    if len(set(steps)) < len(steps):
        raise ConfigError(f"--steps: {', '.join(stated)} has one twice; each counts once")
    return steps
