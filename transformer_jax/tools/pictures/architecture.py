"""A model drawn from the modules that it runs, with shapes and parameter counts (Vaswani et al. 2017, figure 1)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import jax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.models.inspection import ModuleCall, module_calls
from transformer_jax.runtime.hardware import DeviceSettings, resolve_for_device
from transformer_jax.tasks.task import objective_of, task_class
from transformer_jax.tools.pictures.block_diagram import Block, draw_block_diagram
from transformer_jax.tools.pictures.subject import Subject
from transformer_jax.training.sharding import make_mesh
from transformer_jax.training.state import count_parameters

# Sizes of the abstract batch, unlike any width of a model; a shape then shows which side a module works on.
ROWS, SOURCE, TARGET = 1009, 11, 13
LETTERS = {ROWS: "B", SOURCE: "S", TARGET: "T"}
# The same matrix is called twice or more: each call is a block of its own.
ROLES = {"embed": "embedding", "logits": "output projection"}
WITHOUT_A_BLOCK = {"Dropout"}


class Architecture(NamedTuple):
    """Blocks of the source side and of the target side, the lowest first, links between them, and all parameters."""

    source: tuple[Block, ...]
    target: tuple[Block, ...]
    links: tuple[tuple[str, str], ...]
    parameters: int


class Node(NamedTuple):
    """A module with all its calls merged: its inner modules, and the leaves of its parameters by path."""

    path: tuple[str, ...]
    kind: str
    role: str
    shape: tuple[int, ...] | None
    leaves: Mapping[tuple[str, ...], int]
    inner: tuple["Node", ...]

    @property
    def parameters(self) -> int:
        return sum(self.leaves.values())

    @property
    def name(self) -> str:
        """Its name without the number of its layer."""
        return re.sub(r"_\d+$", "", self.path[-1])

    def form(self) -> tuple[object, ...]:
        """Equal for the layers of a stack."""
        inner = tuple(each.form() for each in self.inner)
        return self.name, self.kind, self.role, self.shape, self.parameters, inner


def architecture(config: ExperimentConfig) -> Architecture:
    """The blocks of the model of ``config``, with a vocabulary as large as its settings allow; nothing is computed."""
    config = resolve_for_device(config, lambda: DeviceSettings("float32", 4))
    if config.task not in ("translation", "language_model"):
        raise ConfigError(
            f"config: no layers of task={config.task} are drawn; give one of translation or language_model"
        )
    objective = objective_of(config, make_mesh(config.mesh))
    params = jax.eval_shape(objective.init_params, jax.random.key(0))
    batch = task_class(config.task).batch_shape(config, ROWS, TARGET)
    inputs = (_wide(batch[0], SOURCE), batch[1]) if config.task == "translation" else (batch,)
    nodes = _merged(module_calls(objective.model, params, *inputs).inner, _leaves(params))
    sides: tuple[list[Node], list[Node]] = ([], [])
    for node in nodes:
        is_target = TARGET in (node.shape or ()) or (bool(sides[1]) and SOURCE not in (node.shape or ()))
        sides[is_target].append(node)
    seen: set[tuple[str, ...]] = set()
    source, target = (tuple(_blocks(side, seen)) for side in sides)
    keys = {block.key for side in (source, target) for outer in side for block in outer.walk()}
    links = tuple(link for link in _links(*sides) if keys.issuperset(link))
    return Architecture(source, target, links, count_parameters(params))


def make(subject: Subject, path: Path) -> list[str]:
    """Draws the model of ``subject``."""
    drawn = architecture(subject.config)
    columns = [side for side in (drawn.source, drawn.target) if side]
    draw_block_diagram(columns, drawn.links, path, title=f"{subject.name}: {drawn.parameters:,} parameters")
    blocks = sum(1 for side in columns for block in side for _ in block.walk())
    return [f"{subject.name}: {drawn.parameters:,} parameters, {blocks} blocks"]


def _wide(tokens: PyTree, width: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0], width), leaf.dtype), tokens)


def _leaves(params: PyTree) -> dict[tuple[str, ...], int]:
    return {tuple(key.key for key in path): leaf.size for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def _merged(calls: Sequence[ModuleCall], leaves: Mapping[tuple[str, ...], int]) -> list[Node]:
    """The modules among ``calls``, each once, where it was called last; calls of a module by itself are part of it."""
    merged: dict[tuple[tuple[str, ...], str, object], list[ModuleCall]] = {}
    for call in _in_residuals(calls):
        if call.kind not in WITHOUT_A_BLOCK and call.shape is not None:
            role = ROLES.get(call.method, "")
            key = call.path, role, call.shape if role else None
            merged[key] = [*merged.pop(key, []), call]
    paths = {path for path, *_ in merged}
    nodes = []
    for (path, role, _), same in merged.items():
        if any(path[:length] in paths for length in range(1, len(path))):
            continue  # Shown inside that module.
        inner = _merged(list(_inner(same, path)), leaves)
        own = {leaf: size for leaf, size in leaves.items() if leaf[: len(path)] == path}
        for each in inner:
            own |= each.leaves
        nodes.append(Node(path, same[-1].kind, role, same[-1].shape, own, tuple(inner)))
    return nodes


def _in_residuals(calls: Sequence[ModuleCall]) -> list[ModuleCall]:
    """``calls`` with those between ``before`` and ``after`` of a residual connection inside it."""
    nested: list[ModuleCall] = []
    for call in calls:
        starts = [index for index, each in enumerate(nested) if (each.path, each.method) == (call.path, "before")]
        if call.method == "after" and starts:
            before, *inside = nested[starts[-1] :]
            nested[starts[-1] :] = [replace(call, inner=[*before.inner, *inside, *call.inner])]
        else:
            nested.append(call)
    return nested


def _inner(calls: Sequence[ModuleCall], path: tuple[str, ...]) -> Iterator[ModuleCall]:
    for call in calls:
        for each in call.inner:
            yield from _inner([each], path) if each.path == path else [each]


def _blocks(nodes: Sequence[Node], seen: set[tuple[str, ...]]) -> Iterator[Block]:
    """The blocks of modules, equal ones in a row as one."""
    for _, group in groupby(nodes, Node.form):
        same = list(group)
        shown = same[-1]
        is_shared = bool(shown.leaves) and shown.leaves.keys() <= seen
        inner = tuple(_blocks(shown.inner, seen))
        for node in same:
            seen.update(node.leaves)
        count = "shared" if is_shared else f"{shown.parameters:,} parameters" if shown.leaves else ""
        shape = " × ".join(LETTERS.get(size, f"{size:,}") for size in shown.shape or ())
        yield Block(
            "/".join(shown.path),
            _title(shown),
            f"{shown.kind}  [{shape}]",
            count,
            inner,
            len(same),
            _sum_before(shown),
            # The two directions of a recurrent encoder read the same.
            is_beside=shown.name.startswith("backward"),
        )


def _title(node: Node) -> str:
    """A residual connection has the name of its class, since it wraps the part that it is named after."""
    if node.kind.endswith("Residual"):
        return node.kind
    name = node.role or node.name.replace("_", " ")
    return f"+ {name}" if name.endswith("positions") else name


def _sum_before(node: Node) -> int | None:
    """For a residual connection the inner block above the sum: its norm if that comes last, as in post-norm, else none."""
    if not node.kind.endswith("Residual"):
        return None
    last = len(node.inner) - 1
    return last if node.inner[last].kind == "LayerNorm" else last + 1


def _links(source: Sequence[Node], target: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """From the encoded source to each cross attention; from a state without positions to the decoder that it starts."""
    encoded = [node for node in source if SOURCE in (node.shape or ())]
    for call in _walk(target) if encoded else ():
        if call.path[-1] == "cross_attention":
            yield "/".join(encoded[-1].path), "/".join(call.path)
    if source and SOURCE not in (source[-1].shape or ()):
        yield "/".join(source[-1].path), "/".join(next(node for node in target if node.inner).path)


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _walk(node.inner)
