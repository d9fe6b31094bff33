"""Execution of a stack of equal layers: scanned or unrolled, with or without rematerialization.

All compute the same from the same parameters, which are stored layer by layer, so a checkpoint fits
every one. Only dropout masks differ: scanned and rematerialized layers run unbound and derive other
keys. While a collection is sown, all layers run bound and unrolled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from transformer_jax.array_types import Array, Hidden, PyTree
from transformer_jax.layers.site import Site

Policy = Callable[..., Any]
# Arrays that a layer stores for its backward pass; others are rematerialized (Chen et al. 2016).
REMATERIALIZATIONS: dict[str, Policy] = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "keep_projections": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "keep_products": jax.checkpoint_policies.dots_saveable,
}


@dataclass(frozen=True)
class Unrolled:
    """Layers in turn, with all activations stored: the fastest step, the longest compilation."""

    is_scanned: ClassVar[bool] = False
    """Whether one compiled layer stands for all."""

    def __call__(self, layers: Sequence[nn.Module], hidden: Hidden, *context: Any, train: bool) -> Hidden:
        """Call ``layer(hidden, *context, train=train)`` in turn, and return the last output."""
        for layer in layers:
            hidden = layer(hidden, *context, train=train)
        return hidden


@dataclass(frozen=True)
class Rematerialized(Unrolled):
    """Unrolled layers that store their inputs and the arrays that ``policy`` saves."""

    policy: Policy

    def __call__(self, layers: Sequence[nn.Module], hidden: Hidden, *context: Any, train: bool) -> Hidden:
        if _must_be_bound(layers):
            return super().__call__(layers, hidden, *context, train=train)
        for layer in layers:
            run = jax.checkpoint(_unbound(layer, train), policy=self.policy)
            hidden = run(hidden, layer.variables["params"], _dropout_key(layer, train), *context)
        return hidden


@dataclass(frozen=True)
class Scanned(Unrolled):
    """One layer, compiled once, as the body of a loop over the stacked parameters of all.

    With ``policy`` the body keeps as little as ``Rematerialized``.
    """

    is_scanned: ClassVar[bool] = True

    policy: Policy | None

    def __call__(self, layers: Sequence[nn.Module], hidden: Hidden, *context: Any, train: bool) -> Hidden:
        if _must_be_bound(layers):
            return super().__call__(layers, hidden, *context, train=train)
        if len(jax.tree.leaves(hidden)) > 1:
            # The first layer may add states to the stream, so it is not in the loop.
            first = Rematerialized(self.policy) if self.policy else Unrolled()
            hidden, layers = first(layers[:1], hidden, *context, train=train), layers[1:]
            if not layers:
                return hidden
        run = _unbound(layers[0], train)
        if self.policy:
            # Inside a loop the compiler does not merge the recomputation, so no barrier is needed.
            run = jax.checkpoint(run, policy=self.policy, prevent_cse=False)

        def advance(hidden: Hidden, of_layer: tuple[PyTree, Array | None]) -> tuple[Hidden, None]:
            return run(hidden, *of_layer, *context), None

        of_layers = [(layer.variables["params"], _dropout_key(layer, train)) for layer in layers]
        return lax.scan(advance, hidden, jax.tree.map(lambda *leaves: jnp.stack(leaves), *of_layers))[0]


def stack_of(scan_layers: bool, rematerialize: str) -> Unrolled:
    """Return the stack for settings of a model; ``rematerialize`` as in ``REMATERIALIZATIONS``."""
    policy = REMATERIALIZATIONS.get(rematerialize)
    if scan_layers:
        return Scanned(policy)
    return Rematerialized(policy) if policy else Unrolled()


def layer_sites(stack: Unrolled, site: Site) -> list[Site]:
    """Return the site of every layer of a stack that begins at ``site``."""
    return [replace(site, index=index, is_scanned=stack.is_scanned) for index in range(site.depth)]


def _must_be_bound(layers: Sequence[nn.Module]) -> bool:
    """Return whether bound modules must run, to create parameters or to sow into a collection."""
    return (
        not layers
        or layers[0].is_initializing()
        or any(layers[0].is_mutable_collection(name) for name in ("intermediates", "losses"))
    )


def _unbound(layer: nn.Module, train: bool) -> Callable[..., Hidden]:
    """Return the layer as a pure function of input, parameters, dropout key, and context."""
    module = layer.clone(parent=None, name=None)

    def run(hidden: Hidden, params: PyTree, key: Array | None, *context: Any) -> Hidden:
        rngs = {} if key is None else {"dropout": key}
        output: Hidden = module.apply({"params": params}, hidden, *context, train=train, rngs=rngs)  # type: ignore[assignment]
        return output

    return run


def _dropout_key(layer: nn.Module, train: bool) -> Array | None:
    return layer.make_rng("dropout") if train else None
