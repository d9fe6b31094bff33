"""Matching of a model's parameters to those of a checkpoint: by name, after renaming, of the same shape."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from transformer_jax.config import ConfigError, InitConfig
from transformer_jax.config.model import renamings
from transformer_jax.training.parameter_names import NAMES_SHOWN, some_of

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes by path: ``{"encoder_layers_0/self_attention/query": (512, 8, 64)}``."""


class Match(NamedTuple):
    """Parameters that a model takes from a checkpoint: ``taken`` has its own name and that in the checkpoint.

    ``missing`` are not in the checkpoint and ``left_out`` are excluded: both are randomly initialized. ``unused`` are only in
    the checkpoint, under their names there.
    """

    taken: dict[str, str]
    missing: list[str]
    left_out: list[str]
    unused: list[str]


def match_parameters(saved: Shapes, wanted: Shapes, init: InitConfig) -> Match:
    """Finds for every parameter of the model, ``wanted``, what it starts from among those ``saved`` in a checkpoint.

    Raises ConfigError, with names, when two of the checkpoint are renamed to one, when a rule has no effect, when what is to
    be taken has another shape, or when there is nothing to take.
    """
    origin = renamed(list(saved), init)
    left_out = [name for name in wanted if init.leave_out and re.search(init.leave_out, name)]
    if init.leave_out and not left_out:
        problem = f"{init.leave_out!r} is found in no path of this model"
        raise ConfigError(f"init.leave_out: {problem}; paths are {some_of(list(wanted))}")
    skipped = set(left_out)
    taken = {name: origin[name] for name in wanted if name in origin and name not in skipped}
    missing = [name for name in wanted if name not in origin and name not in skipped]
    unused = [old for new, old in origin.items() if new not in wanted]
    if not taken:
        raise ConfigError(
            f"init.run: {init.run} has no parameter of this model; it has {some_of(list(saved))}; the model has "
            f"{some_of(list(wanted))}; use init.rename to map them"
        )
    _require_same_shapes(taken, saved, wanted)
    return Match(taken, missing, left_out, unused)


def renamed(names: list[str], init: InitConfig) -> dict[str, str]:
    """The names after ``init.rename``, each with what it was.

    Raises ConfigError when a rule changes none, or two come out the same.
    """
    current = {name: name for name in names}
    for pattern, new in renamings(init.rename):
        after = {old: pattern.sub(new, name) for old, name in current.items()}
        if after == current:
            problem = f"{pattern.pattern!r} changes no path of the checkpoint"
            raise ConfigError(f"init.rename: {problem}; paths are {some_of(list(current.values()))}")
        current = after
    origin: dict[str, str] = {}
    for old, new in current.items():
        if new in origin:
            raise ConfigError(f"init.rename: {origin[new]} and {old} of the checkpoint would both be {new}")
        origin[new] = old
    return origin


def _require_same_shapes(taken: Mapping[str, str], saved: Shapes, wanted: Shapes) -> None:
    clashes = [name for name, old in taken.items() if saved[old] != wanted[name]]
    if not clashes:
        return
    lines = [f"  {name}: {saved[taken[name]]} in the checkpoint, {wanted[name]} here" for name in clashes[:NAMES_SHOWN]]
    if len(clashes) > NAMES_SHOWN:
        lines.append(f"  and {len(clashes) - NAMES_SHOWN} more")
    raise ConfigError(
        f"init.run: {len(clashes)} of {len(taken)} parameters that the checkpoint has too are of another shape; use the sizes "
        f"of that model, or leave them out, as by --config.init.leave_out='^{clashes[0]}$':\n" + "\n".join(lines)
    )


def describe_match(match: Match) -> str:
    """The match as text: the number of each kind, and some of their names."""
    lines = [f"{len(match.taken)} arrays taken"]
    for text, names in (
        ("not in the checkpoint, randomly initialized", match.missing),
        ("left out, randomly initialized", match.left_out),
        ("in the checkpoint only, unused", match.unused),
    ):
        if names:
            lines.append(f"{len(names)} {text}: {some_of(names)}")
    return "; ".join(lines)
