"""What one compiled training step costs on random sentences: seconds to compile, memory,
operations, seconds to run."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from transformer_jax.array_types import PyTree
    from transformer_jax.config import ExperimentConfig
    from transformer_jax.training.step import LossFunction
    from transformer_jax.training.update import Update

GIB = 2**30
BASE = Path(__file__).resolve().parents[2] / "configs" / "transformer_base.py"


def update_of(config: "ExperimentConfig", mesh: "Mesh", loss: "LossFunction | None" = None) -> "Update":
    """The update of a recipe on these devices, with its own loss or another."""
    from transformer_jax.tasks.task import objective_of
    from transformer_jax.training.update import Update

    objective = objective_of(config, mesh)
    return Update(config, loss or objective.loss, objective.init_params, mesh)


def step_cost(
    config: "ExperimentConfig",
    rows: int,
    length: int,
    steps: int,
    loss: "LossFunction | None" = None,
    run_below: float = float("inf"),
    is_donated: bool = True,
) -> dict:
    """Of the update of ``config`` for ``rows`` rows of ``length`` tokens on either side.

    With another ``loss`` if there is one, and the new state written over the old one unless it is
    not donated. Bytes by the compiler: ``temporaries`` (activations, gradients, workspace),
    ``arguments`` (state, batch), and ``total``, with results that are not written over arguments;
    ``flops`` of the matrix products, each computed once, scores that a mask hides included;
    ``traffic``, the bytes that instructions read and write; with ``steps``, and at most
    ``run_below`` GiB needed, ``seconds`` a step (median) and the ``losses`` a token, one more than
    steps.
    """
    import jax

    from transformer_jax.config import hyperparameters_of
    from transformer_jax.tools.preflight.chips import Topology
    from transformer_jax.tools.preflight.compiled_program import model_flops
    from transformer_jax.tools.preflight.memory_traffic import traffic_by_kind
    from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters

    mesh = make_mesh(config.mesh)
    update = update_of(config, mesh, loss)
    batch = put_batch(random_batch(config, rows, length), mesh)
    started = time.perf_counter()
    shapes = update.state_shapes, batch, update.hyperparameter_shapes
    compiled = (update.lower(batch) if is_donated else jax.jit(update.step).lower(*shapes)).compile()
    result = {"rows": rows, "length": length, "compile_seconds": time.perf_counter() - started}
    memory = compiled.memory_analysis()
    result |= {"temporaries": memory.temp_size_in_bytes, "arguments": memory.argument_size_in_bytes}
    written = memory.output_size_in_bytes - memory.alias_size_in_bytes
    result |= {"total": result["temporaries"] + result["arguments"] + written}
    result |= {
        "flops": model_flops(config, Topology("here", jax.devices(), None), batch),
        "traffic": sum(traffic_by_kind(compiled.as_text() or "").values()),
        "jax": jax.__version__,
    }
    if not steps or result["temporaries"] + result["arguments"] > run_below * GIB:
        return result
    state, hyperparameters = update.initial_state(config.seed), put_hyperparameters(hyperparameters_of(config), mesh)
    seconds, losses = [], []
    for _ in range(1 + steps):
        started = time.perf_counter()
        state, metrics = compiled(state, batch, hyperparameters)
        losses.append(float(metrics.sums.nll) / float(metrics.sums.tokens))
        seconds.append(time.perf_counter() - started)
    return result | {"seconds": statistics.median(seconds[1:]), "losses": losses}


def recipe_here(recipe: str, overrides: Sequence[str]) -> "ExperimentConfig":
    """A recipe with ``--config.name=value`` applied, in the precision that ``auto`` means on the
    device that is here."""
    import jax

    from transformer_jax.config import resolve
    from transformer_jax.runtime.hardware import resolve_for_device, settings_on

    stated = [tuple(each.removeprefix("--config.").split("=", 1)) for each in overrides]
    return resolve_for_device(resolve(recipe, stated), lambda: settings_on(jax.devices()[0]))


def random_batch(config: "ExperimentConfig", rows: int, length: int) -> "PyTree":
    """A batch of the task of ``config`` without padding: one sentence a row, or four in a packed
    row."""
    import jax
    import numpy as np

    from transformer_jax.sequence_types import Tokens
    from transformer_jax.tasks.task import task_class

    rng = np.random.default_rng(0)

    index = np.arange(length, dtype=np.int32)
    segments = index * (4 if config.batching.kind == "packed" else 1) // length
    positions = index - np.searchsorted(segments, segments)

    def side(_: Tokens) -> Tokens:
        ids = rng.integers(4, config.tokenizer.vocabulary_size, (rows, length)).astype(np.int32)
        return Tokens(ids, *(np.tile(each.astype(np.int32), (rows, 1)) for each in (1 + segments, positions)))

    shape = task_class(config.task).batch_shape(config, rows, length)
    return jax.tree.map(side, shape, is_leaf=lambda each: isinstance(each, Tokens))


def base_settings(**settings: object) -> "ExperimentConfig":
    """The paper's base recipe, in float32 unless they say otherwise; of a setting's name ``__`` is
    its dot."""
    from transformer_jax.config import resolve

    stated = {"model__compute_dtype": "float32"} | settings
    return resolve(str(BASE), [(key.replace("__", "."), str(value)) for key, value in stated.items()])


def rows_for(positions: int, length: int, multiple: int = 1) -> int:
    """The number of rows that hold about ``positions`` positions."""
    return max(round(positions / length / multiple), 1) * multiple


def measured_apart(script: str, *arguments: str) -> dict:
    """What the benchmark ``script`` prints as JSON when it is started once more, in a process that
    measures one thing."""
    command = [sys.executable, script, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def write_table(folder: Path, stem: str, table: str) -> None:
    """Writes the table ``stem.md`` to a folder that need not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.md").write_text(table)
