"""What a teacher-forced pass leaves behind for looking at: weights, transformed values, gradients of the embeddings."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, PyTree
from transformer_jax.models.interface import Module, attention_maps
from transformer_jax.sequence_types import Tokens

# The methods that make the values of an attention: of multi-head attention, and of that of an RNN.
VALUES_OF: dict[str, Callable[[Any], Array]] = {
    "project_memory": lambda returned: returned[1],
    "prepare": lambda prepared: prepared.values[:, None],
}


class AttentionRecord(NamedTuple):
    """``weights`` [B, H, Q, M] of an attention, and ``transformed`` [B, H, M, D]: every value times the output matrix.

    The output of the attention is the sum over heads and memory of weights times transformed values (Kobayashi et al. 2020,
    equation 6).
    """

    weights: Float[Array, "B H Q M"]
    transformed: Float[Array, "B H M D"]


def attention_records(model: Module, params: PyTree, *inputs: Tokens) -> dict[str, AttentionRecord]:
    """The record of every attention of a teacher-forced pass over ``inputs``, by the path of its module."""
    values: dict[str, Array] = {}

    def keep(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
        returned = method(*arguments, **options)
        if context.method_name in VALUES_OF and returned is not None:
            values["/".join(context.module.path)] = VALUES_OF[context.method_name](returned)
        return returned

    with nn.intercept_methods(keep):
        weights = attention_maps(model, params, *inputs)
    return {path: AttentionRecord(weights[path], _through_output(values[path], params, path)) for path in weights}


def _through_output(values_BHMU: Array, params: PyTree, path: str) -> Array:
    """Values times the output matrix; where an attention has none its heads lie side by side."""
    heads, size = values_BHMU.shape[1], values_BHMU.shape[3]
    of_attention = reduce(lambda inner, name: inner.get(name, {}), path.split("/"), params)
    output = of_attention.get("output", jnp.eye(heads * size).reshape(heads, size, heads * size))
    return jnp.einsum("BHMU,HUD->BHMD", values_BHMU.astype(jnp.float32), output)


def target_log_probs(model: Module, params: PyTree, *inputs: Tokens) -> Float[Array, " T"]:
    """Log-probability of every token of the last of ``inputs``, of which there is one row each."""
    return _log_probs(model, params, inputs)


def _log_probs(model: Module, params: PyTree, inputs: Sequence[Tokens]) -> Float[Array, " T"]:
    logits = model.apply({"params": params}, *inputs, train=False)
    log_probs = jax.nn.log_softmax(logits[0].astype(jnp.float32))
    return jnp.take_along_axis(log_probs, jnp.asarray(inputs[-1].ids)[0][:, None], axis=1)[:, 0]


def gradients_times_inputs(model: Module, params: PyTree, *inputs: Tokens, at_once: int = 8) -> tuple[Array, ...]:
    """Gradient x input of every target token's log-probability, summed over the width (Shrikumar et al. 2017, section 2).

    For ``inputs`` of one row each, [T, L] for each of them: how much the embedding of token ``l``, of the last input shifted
    right by one, adds to the log-probability of target token ``t`` to first order. A backward pass for each of T, ``at_once``
    of them together.
    """

    def scored(shifts: Sequence[Array]) -> tuple[Array, list[Array]]:
        embedded: list[Array] = []
        is_inside = False

        def shift(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
            nonlocal is_inside
            if context.method_name != "embed" or is_inside:
                return method(*arguments, **options)
            # An embedding may call that of its base class.
            is_inside = True
            output = method(*arguments, **options) + shifts[len(embedded)]
            is_inside = False
            embedded.append(output)
            return output

        with nn.intercept_methods(shift):
            return _log_probs(model, params, inputs), embedded

    shapes = jax.eval_shape(scored, [jnp.zeros(())] * len(inputs))[1]
    zeros = [jnp.zeros(each.shape, each.dtype) for each in shapes]
    log_probs, to_shifts, embedded = jax.vjp(scored, zeros, has_aux=True)

    def row(cotangent: Float[Array, " T"]) -> tuple[Array, ...]:
        (gradients,) = to_shifts(cotangent)
        return tuple(jnp.sum(each * by, axis=-1)[0] for each, by in zip(gradients, embedded, strict=True))

    rows: tuple[Array, ...] = jax.lax.map(row, jnp.eye(len(log_probs)), batch_size=at_once)
    return rows
