"""A refactor must not change any program: digests of the programs of six recipes on up to three
meshes are stored.

python tests/program_baselines.py --update
"""

import argparse
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    sys.path.insert(0, str(ROOT))

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ExperimentConfig
from transformer_jax.config.optimization import MeshConfig
from transformer_jax.config.run_settings import resolve
from transformer_jax.runtime.hardware import DeviceSettings, resolve_for_device
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.training.sharding import batch_sharding, decoding_shardings, make_mesh
from transformer_jax.training.update import Update

FILE = ROOT / "tests" / "data" / "programs" / f"jax-{jax.__version__}.json"
COMMAND = "python tests/program_baselines.py --update"

# Further layers would be the same again; base has two, so that their order is seen too.
ONE = {"model.num_encoder_layers": "1", "model.num_decoder_layers": "1"}
RECIPES: dict[str, tuple[str, dict[str, str]]] = {
    "base": ("transformer_base", {"model.num_encoder_layers": "2", "model.num_decoder_layers": "2"}),
    "tiny": ("multi30k:tiny", ONE),
    "bahdanau": ("seq2seq:bahdanau", ONE),
    "luong_general": ("seq2seq:luong_general", ONE),
    "language_model": ("language_model:quick", {}),
    "skip_gram": ("word_vectors:quick", {}),
}
MESHES = {
    "1": MeshConfig(data=1),
    "data=8": MeshConfig(data=8),
    "fsdp=4,tensor=2": MeshConfig(data=1, fsdp=4, tensor=2),
}
# The update of data-parallel devices is in tiny and base, and the recurrent encoder in bahdanau.
MESHES_OF = {
    "bahdanau": ("1", "fsdp=4,tensor=2"),
    "luong_general": ("fsdp=4,tensor=2",),
    "language_model": ("1", "fsdp=4,tensor=2"),
}


class Baseline(NamedTuple):
    """A program: the digest of its text, and its operations by name."""

    digest: str
    operations: dict[str, int]


Programs = dict[str, dict[str, Baseline]]
"""By recipe and name."""


def baselines_of(recipe: str) -> dict[str, Baseline]:
    """Its training step, evaluation loss and decoding step on each mesh, by ``"mesh program"``."""
    path, overrides = RECIPES[recipe]
    config = resolve_for_device(resolve(path, list(overrides.items())), lambda: DeviceSettings("bfloat16", 4))
    return {
        f"{name} {program}": baseline_of(lower().as_text())
        for name in MESHES_OF.get(recipe, MESHES)
        for program, lower in programs(config, MESHES[name])
    }


def programs(
    config: ExperimentConfig, mesh_config: MeshConfig
) -> Iterator[tuple[str, Callable[[], jax.stages.Lowered]]]:
    """Each with what lowers it; shapes and shardings only, nothing is allocated."""
    mesh = make_mesh(mesh_config, jax.devices()[: math.prod(mesh_config.sizes.values())])
    task, objective = task_class(config.task), objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh, objective.update_rule)
    batch = task.batch_shape(config, 16, 16)
    yield "training step", lambda: update.lower(batch)
    params = update.state_shapes.params
    rows = jax.tree.map(lambda leaf: with_sharding(leaf, batch_sharding(mesh)), batch)
    if config.task == "word_vectors":
        key = jax.eval_shape(lambda: jax.random.key(0))
        yield "evaluation loss", lambda: jax.jit(objective.loss).lower(params, rows, key, update.hyperparameter_shapes)
        return
    scored = (rows.ids.update(dtype=bool),) if config.task == "language_model" else ()
    yield "evaluation loss", lambda: jax.jit(objective.unsmoothed_loss).lower(params, rows, *scored)
    decoding = task.decoding(config, objective, 16, mesh)
    placed = jax.tree.map(with_sharding, params, decoding_shardings(params, mesh))
    inputs = with_sharding(decoding.inputs, batch_sharding(mesh))
    state = jax.eval_shape(
        lambda params, inputs: decoding.start(params, inputs, decoding.capacities[0][0]), placed, inputs
    )
    yield "decoding step", lambda: jax.jit(decoding.step).lower(placed, state)


def with_sharding(leaf: PyTree, sharding: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def baseline_of(text: str) -> Baseline:
    """Of StableHLO; names of Python functions and arguments are no part of it."""
    names: dict[str, str] = {}
    text = re.sub(r'loc\(.*?\)|jax\.result_info = ".*?",? ?', "", text)
    text = re.sub(r'@("[^"]*"|[\w.$-]+)', lambda match: names.setdefault(match[0], f"@{len(names)}"), text)
    counts = Counter(re.findall(r"(?:stablehlo|func|sdy|chlo)\.\w+", text))
    return Baseline(sha256(text.encode()).hexdigest()[:16], dict(sorted(counts.items())))


def stored() -> Programs | None:
    """What the tests compare with; None for a jax without."""
    return read(FILE.read_text(encoding="utf-8")) if FILE.exists() else None


def read(text: str) -> Programs:
    content = json.loads(text)
    return {recipe: {name: Baseline(*each) for name, each in found.items()} for recipe, found in content.items()}


def difference(before: Baseline, now: Baseline) -> str:
    """The operations whose number changed, ``stablehlo.dot_general 12 -> 14``."""
    names = sorted(before.operations.keys() | now.operations.keys())
    counts = ((name, before.operations.get(name, 0), now.operations.get(name, 0)) for name in names)
    changed = ", ".join(f"{name} {old} -> {new}" for name, old, new in counts if old != new)
    return changed or "as many operations of each kind, with other operands, shapes or attributes"


def changes(before: Programs, now: Programs) -> list[str]:
    """A line for each program that is new, gone or another."""
    pairs = dict.fromkeys((recipe, name) for side in (before, now) for recipe, found in side.items() for name in found)
    lines = []
    for recipe, name in pairs:
        old, new = (side.get(recipe, {}).get(name) for side in (before, now))
        if old != new:
            lines.append(f"{recipe}, {name}: {difference(old, new) if old and new else 'new' if new else 'gone'}")
    return lines


def update() -> None:
    """Writes the file of this jax, a program a line, and prints what changed."""
    now, lines = {recipe: baselines_of(recipe) for recipe in RECIPES}, []
    print("\n".join(changes(stored() or {}, now)))
    for recipe, found in now.items():
        programs = (f"  {json.dumps(name)}: {json.dumps(each, separators=(',', ':'))}" for name, each in found.items())
        lines.append(f"{json.dumps(recipe)}: {{\n" + ",\n".join(programs) + "\n }")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", required=True, help="store the programs of this checkout")
    parser.parse_args()
    update()


if __name__ == "__main__":
    main()
