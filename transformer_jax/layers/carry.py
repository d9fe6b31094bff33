"""State that self-attentions pass from layer to layer, such as the values of the first layer.

Layers then have ``Carried`` as input and output, which residual connections of
``carrying_residual`` take apart. The layers and their execution are the same.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import AnyArray, Array, Float, Hidden, Int, PyTree, TokenIds
from transformer_jax.config import ConfigError
from transformer_jax.layers.attention import KVCache, LayerCache, StepMask
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.modified_attention import ModifiedAttention, SelfAttentionChange
from transformer_jax.layers.part_shapes import require_shape
from transformer_jax.layers.residual import Residual


class Carried(NamedTuple):
    """Hidden states (or another residual stream), the input ids [B, L], and states by part.

    There are no states before the first layer.
    """

    hidden: PyTree
    token_ids: TokenIds
    states: dict[str, PyTree]


class CarryingAttention(ModifiedAttention):
    """Self-attention of ``Carried``, whose changes read and write states in ``memory``."""

    carries = True

    def __call__(  # type: ignore[override]  # another signature: hidden states with their carry
        self, queries: Carried, memory: Carried, mask: SentenceMask, *, train: bool
    ) -> Carried:
        """Attend from ``queries`` to ``memory``, which are the same."""
        key_BGMK, value_BGMU, states = self.carried_memory(memory, mask.positions[1])
        attended = self.attend_to(queries.hidden, key_BGMK, value_BGMU, mask, train=train)
        return queries._replace(hidden=attended, states=states)

    def step(  # type: ignore[override]
        self, inputs: Carried, cache: LayerCache, mask: StepMask
    ) -> tuple[Carried, LayerCache]:
        """Attend as ``MultiHeadAttention.step``. The states belong to the new positions."""
        attended, cache = super().step(inputs, cache, mask)  # type: ignore[arg-type]
        return inputs._replace(hidden=attended, states=self.carried_memory(inputs, mask.query_positions)[2]), cache

    def attend(self, queries: Carried, cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:  # type: ignore[override]
        return super().attend(queries.hidden, cache, mask)

    def memory_of(  # type: ignore[override]
        self, memory: Carried, positions: Int[AnyArray, "B M"]
    ) -> tuple[Float[Array, "B G M K"], Float[Array, "B G M U"]]:
        return self.carried_memory(memory, positions)[:2]

    def carried_memory(
        self, memory: Carried, positions: Int[AnyArray, "B M"]
    ) -> tuple[Array, Array, dict[str, PyTree]]:
        """Return changed keys [B, G, M, K], values [B, G, M, U], states for the next layer."""
        key_BGMK, value_BGMU = super().memory_of(memory.hidden, positions)
        states = dict(memory.states)
        for name, change in self.changes.items():
            if isinstance(change, SelfAttentionChange) and change.carries:
                key, value, states[name] = change.memory(key_BGMK, value_BGMU, states.get(name), memory.token_ids)
                key_BGMK = require_shape(key, key_BGMK.shape, "B, G, M, K", type(change).memory)
                value_BGMU = require_shape(value, value_BGMU.shape, "B, G, M, U", type(change).memory)
        return key_BGMK, value_BGMU, states


def carrying_attention(attention: type[ModifiedAttention]) -> type[ModifiedAttention]:
    """Return the class of attention that carries, or raise ConfigError if it has another cache."""
    if attention is not ModifiedAttention:
        problem = f"{attention.__name__} has its own keys and values, which a part with a state between layers changes"
        raise ConfigError("model.attention", problem, "choose one of the two")
    return CarryingAttention


@cache
def carrying_residual(residual: type[Residual], is_of_carrying: bool) -> type[Residual]:
    """Return the residual connection of ``Carried``.

    ``is_of_carrying``: whether its sublayer is an attention that carries.
    """

    class CarryingResidual(residual):  # type: ignore[misc]
        # Not wrapped by Flax: shapes are checked, and calls recorded, without the carry.
        @nn.nowrap
        def enter(self, x: Hidden, token_ids: TokenIds) -> Carried:
            return Carried(super().enter(x, token_ids), jnp.asarray(token_ids), {})

        @nn.nowrap
        def before(self, x: Carried) -> Any:
            inputs = super().before(x.hidden)
            return x._replace(hidden=inputs) if is_of_carrying else inputs

        @nn.nowrap
        def after(self, x: Carried, y: Any, *, train: bool) -> Carried:
            output, states = (y.hidden, y.states) if is_of_carrying else (y, x.states)
            return x._replace(hidden=super().after(x.hidden, output, train=train), states=states)

        @nn.nowrap
        def leave(self, x: Carried) -> Hidden:
            return super().leave(x.hidden)

    return CarryingResidual


def constrain_stream(constrain: Callable[[PyTree], PyTree], x: PyTree) -> PyTree:
    """Apply ``constrain`` to the hidden states, and let the compiler shard the states of parts."""
    return x._replace(hidden=constrain(x.hidden)) if isinstance(x, Carried) else constrain(x)
