"""Parameters by their paths: listed, frozen, matched to a checkpoint."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax
from jax import lax

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, InitConfig
from transformer_jax.training.sharding import path_of

NAMES_SHOWN = 8
# The untied output matrix, alone or inside of an output layer or of a bias.
OUTPUT_MATRIX = re.compile(r"projection/(embedding/)*table")

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes by path: ``{"encoder_layers_0/self_attention/query": (512, 8, 64)}``."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree by path: ``{"encoder_layers_0/self_attention/query": ...}``."""
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def some_of(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def frozen_mask(params: PyTree, pattern: str) -> PyTree:
    """Return True for leaves whose path matches. Raises ConfigError if all or none match."""
    mask = jax.tree_util.tree_map_with_path(lambda path, _: re.search(pattern, path_of(path)) is not None, params)
    matches = jax.tree.leaves(mask)
    if all(matches) or not any(matches):
        problem = "is found in the path of every parameter" if all(matches) else "is found in the path of no parameter"
        names = some_of(list(named_leaves(params)))
        raise ConfigError("optimizer.freeze", f"{pattern!r} {problem}", f"paths are {names}")
    return mask


def frozen(optimizer: optax.GradientTransformation, pattern: str) -> optax.GradientTransformation:
    """Return ``optimizer`` without the parameters that match: no update, no decay, no state."""

    def kinds(params: PyTree) -> PyTree:
        return jax.tree.map(lambda is_frozen: "frozen" if is_frozen else "trained", frozen_mask(params, pattern))

    return optax.partition({"trained": optimizer, "frozen": optax.set_to_zero()}, kinds)


def with_frozen(average: Callable[..., PyTree], pattern: str, state: PyTree, params: PyTree) -> PyTree:
    """Return ``average`` of the parameters that ``frozen`` trains, and the others unchanged."""
    mask = frozen_mask(params, pattern)
    trained = jax.tree.map(lambda leaf, is_frozen: optax.MaskedNode() if is_frozen else leaf, params, mask)
    averaged = average(state.inner_states["trained"].inner_state, trained)
    return jax.tree.map(lambda leaf, is_frozen, new: leaf if is_frozen else new, params, mask, averaged)


def without_gradient(loss: Callable[..., Any], pattern: str) -> Callable[..., Any]:
    """Return ``loss(params, ...)`` with gradient 0 for the parameters that match ``pattern``.

    The norm of the gradient leaves them out. It is not computed for them, except under
    ``model.scan_layers`` when only some layers are frozen: the gradient of stacked layers is whole.
    """

    def loss_of_trained(params: PyTree, *rest: Any) -> Any:
        mask = frozen_mask(params, pattern)
        stopped = jax.tree.map(lambda leaf, is_frozen: lax.stop_gradient(leaf) if is_frozen else leaf, params, mask)
        return loss(stopped, *rest)

    return loss_of_trained


def trained_share(params: PyTree, pattern: str) -> str:
    """Return the number of trained parameters, in a line."""
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    mask = jax.tree.leaves(frozen_mask(params, pattern))
    trained = sum(size for size, is_frozen in zip(sizes, mask, strict=True) if not is_frozen)
    held = f"{sum(mask)} of {len(mask)} arrays"
    return f"{trained:,} of {sum(sizes):,} parameters train; optimizer.freeze={pattern!r} holds {held}"


class Match(NamedTuple):
    """Parameters that a model takes from a checkpoint.

    ``taken`` maps names in the model to names in the checkpoint. ``missing`` are not in the
    checkpoint and ``left_out`` are excluded: both are randomly initialized. ``unused`` are only in
    the checkpoint.
    """

    taken: dict[str, str]
    missing: list[str]
    left_out: list[str]
    unused: list[str]

    def __str__(self) -> str:
        others = {
            "not in the checkpoint, randomly initialized": self.missing,
            "left out, randomly initialized": self.left_out,
            "in the checkpoint only, unused": self.unused,
        }
        listed = [f"{len(names)} {text}: {some_of(names)}" for text, names in others.items() if names]
        return "; ".join([f"{len(self.taken)} arrays taken", *listed])


def match_parameters(saved: Shapes, wanted: Shapes, init: InitConfig) -> Match:
    """Match every parameter of the model, ``wanted``, with one ``saved`` in a checkpoint.

    Raises ConfigError, with names, when two of the checkpoint are renamed to one, a rule has no
    effect, a shape differs, or there is nothing to take.
    """
    outputs = [name for name in wanted if OUTPUT_MATRIX.fullmatch(name)]
    origin = {
        outputs[0] if outputs and OUTPUT_MATRIX.fullmatch(name) else name: old
        for name, old in renamed(list(saved), init).items()
    }
    left_out = [name for name in wanted if init.leave_out and re.search(init.leave_out, name)]
    if init.leave_out and not left_out:
        problem = f"{init.leave_out!r} is found in no path of this model"
        raise ConfigError("init.leave_out", problem, f"paths are {some_of(list(wanted))}")
    skipped = set(left_out)
    taken = {name: origin[name] for name in wanted if name in origin and name not in skipped}
    missing = [name for name in wanted if name not in origin and name not in skipped]
    unused = [old for new, old in origin.items() if new not in wanted]
    if not taken:
        remedy = f"it has {some_of(list(saved))}; the model has {some_of(list(wanted))}; use init.rename to map them"
        raise ConfigError("init.run", f"{init.run} has no parameter of this model", remedy)
    clashes = [name for name, old in taken.items() if saved[old] != wanted[name]]
    if clashes:
        shown = clashes[:NAMES_SHOWN]
        lines = [f"  {name}: {saved[taken[name]]} in the checkpoint, {wanted[name]} here" for name in shown]
        if len(clashes) > NAMES_SHOWN:
            lines.append(f"  and {len(clashes) - NAMES_SHOWN} more")
        problem = f"{len(clashes)} of {len(taken)} parameters that the checkpoint has too are of another shape"
        remedy = f"use the sizes of that model, or leave them out, as by --config.init.leave_out='^{clashes[0]}$':"
        raise ConfigError("init.run", problem, "\n".join((remedy, *lines)))
    return Match(taken, missing, left_out, unused)


def renamed(names: list[str], init: InitConfig) -> dict[str, str]:
    """Return a map from names after ``init.rename`` to names before. Raises ConfigError."""
    current = {name: name for name in names}
    for pattern, new in init.renamings:
        after = {old: pattern.sub(new, name) for old, name in current.items()}
        if after == current:
            problem = f"{pattern.pattern!r} changes no path of the checkpoint"
            raise ConfigError("init.rename", problem, f"paths are {some_of(list(current.values()))}")
        current = after
    origin: dict[str, str] = {}
    for old, new in current.items():
        if new in origin:
            raise ConfigError("init.rename", f"{origin[new]} and {old} of the checkpoint would both be {new}")
        origin[new] = old
    return origin
