"""Inspection of a model: attention weights, transformed values, gradients, modules."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer_jax.array_types import Array, Bool, Float, Hidden, PyTree
from transformer_jax.errors import natural_order
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import At, scores_of
from transformer_jax.models.interface import Module, call
from transformer_jax.models.transformer_layers import leave
from transformer_jax.sequence_types import Tokens

Value = TypeVar("Value")


class AttentionKind(NamedTuple):
    """A kind of attention: beginning and end of the paths of its modules, and its two token axes.

    The axis ``input`` is ``target`` shifted right: the decoder's input.
    """

    prefix: str
    suffix: str
    rows: str
    columns: str

    def matches(self, path: str) -> bool:
        return path.startswith(self.prefix) and path.endswith(self.suffix)


ATTENTION_KINDS = {
    "encoder": AttentionKind("encoder", "self_attention", "source", "source"),
    "decoder": AttentionKind("decoder", "self_attention", "target", "input"),
    "cross": AttentionKind("decoder", "cross_attention", "target", "source"),
}


def layers_by_kind(values: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Return values by their attention, as ``{kind: {path: value}}`` without empty kinds.

    Layer 10 comes after layer 9: ``jax.jit`` sorts dictionaries as text.
    """
    ordered, by_kind = in_natural_order(values), {}
    for name, kind in ATTENTION_KINDS.items():
        if layers := {path: value for path, value in ordered.items() if kind.matches(path)}:
            by_kind[name] = layers
    return by_kind


def layer_number(path: str) -> int:
    """Return the number of a module's layer, from 1. A module that all layers share has 1."""
    match = re.search(r"layers_(\d+)", path)
    return int(match[1]) + 1 if match else 1


def in_natural_order(values: Mapping[str, Value]) -> dict[str, Value]:
    return {path: values[path] for path in sorted(values, key=natural_order)}


def attention_maps(model: nn.Module, params: PyTree, *inputs: Tokens) -> dict[str, Array]:
    """Return the weights [B, H, Q, M] of every attention in a pass, by module path."""
    _, sown = model.apply({"params": params}, *inputs, train=False, mutable=["intermediates"])
    leaves = flatten_dict(sown.get("intermediates", {}), sep="/")
    return in_natural_order({path.rpartition("/")[0]: weights for path, (weights,) in leaves.items()})


class CapturedCall(NamedTuple):
    """A call of a method of a module at ``path``, with its ``params``, arguments and result."""

    path: str
    method: str
    params: PyTree
    arguments: tuple
    returned: Any


@contextmanager
def captured_calls(*methods: str) -> Iterator[list[CapturedCall]]:
    """Record calls of these methods inside the block, in the order in which they end."""
    calls: list[CapturedCall] = []

    def keep(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
        returned = method(*arguments, **options)
        if context.method_name in methods:
            path, params = "/".join(context.module.path), context.module.variables.get("params", {})
            calls.append(CapturedCall(path, context.method_name, params, arguments, returned))
        return returned

    with nn.intercept_methods(keep):
        yield calls


# The methods that compute the values of an attention: multi-head, and of an RNN.
VALUES_OF: dict[str, Callable[[Any], Array]] = {
    "project_memory": lambda returned: returned[1],
    "carried_memory": lambda returned: returned[1],
    "prepare": lambda prepared: prepared.values[:, None],
}


class AttentionRecord(NamedTuple):
    """``weights`` [B, H, Q, M], and ``transformed`` [B, H, M, D]: values times the output matrix.

    The output of the attention is the sum over heads and memory of weights times transformed values
    (Kobayashi et al. 2020, equation 6).
    """

    weights: Float[Array, "B H Q M"]
    transformed: Float[Array, "B H M D"]


def attention_records(model: Module, params: PyTree, *inputs: Tokens) -> dict[str, AttentionRecord]:
    """Return the record of every attention in a teacher-forced pass, by module path."""
    with captured_calls(*VALUES_OF) as calls:
        weights = attention_maps(model, params, *inputs)
    values = {one.path: VALUES_OF[one.method](one.returned) for one in calls if one.returned is not None}
    return {path: AttentionRecord(weights[path], _through_output(values[path], params, path)) for path in weights}


def _through_output(values_BHMU: Array, params: PyTree, path: str) -> Array:
    """Multiply values of all heads, or groups of heads, by the output matrix, if there is one."""
    heads, size = values_BHMU.shape[1], values_BHMU.shape[3]
    side_by_side = jnp.eye(heads * size).reshape(heads, size, heads * size)
    output = flatten_dict(params, sep="/").get(f"{path}/output", side_by_side)
    values_BHMU = jnp.repeat(values_BHMU, output.shape[0] // heads, axis=1)
    return jnp.einsum("BHMU,HUD->BHMD", values_BHMU.astype(jnp.float32), output)


class AttentionActivations(NamedTuple):
    """Float32 scores before the mask, weights before dropout, and visible keys of an attention."""

    scores: Float[Array, "B H Q M"]
    weights: Float[Array, "B H Q M"]
    visible: Bool[Array, "#B #Q M"]


class Activations(NamedTuple):
    """Outputs of layers with their tokens [B, L], and attentions, of a pass, by module path.

    ``sown``: tuples that modules sowed into ``losses``, by path and name.
    """

    hidden: dict[str, tuple[Hidden, Bool[Array, "B L"]]]
    attention: dict[str, AttentionActivations]
    sown: Mapping[str, tuple[Array, ...]] = MappingProxyType({})

    def with_sown(self, losses: PyTree) -> "Activations":
        return self._replace(sown=flatten_dict(losses, sep="/"))


@contextmanager
def recorded(is_on: bool = True) -> Iterator[Activations]:
    """Record activations in the block, with mutable ``intermediates``, if ``is_on``."""
    activations = Activations({}, {})

    def keep(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
        returned = method(*arguments, **options)
        module, path = context.module, "/".join(context.module.path)
        masks = [argument for argument in arguments if isinstance(argument, SentenceMask)]
        if context.method_name in ("attend_dense", "attend_dense_modified"):
            query, keys, _, visible, *changes = arguments
            query = query * query.shape[-1] ** -0.5
            scores = scores_of(query, keys, module.precision.float32_output)
            if changes and changes[1]:
                (at_queries, at_keys), score_mod, _ = changes
                scores = score_mod(scores, At(at_queries, at_keys, query))
            weights = module.get_variable("intermediates", "attention_weights")[-1]
            activations.attention[path] = AttentionActivations(scores.astype(jnp.float32), weights, visible)
        elif context.method_name == "__call__" and "/" not in path and masks:
            activations.hidden[path] = leave([module], returned), jnp.asarray(masks[0].query_segments) != 0
        return returned

    with nn.intercept_methods(keep) if is_on else nullcontext():
        yield activations


def head_counts(params: PyTree) -> dict[str, int]:
    """Return the number of heads of every attention or mixer, by module path in natural order."""
    outputs = flatten_dict(params, sep="/").items()
    return in_natural_order(
        {path.removesuffix("/output"): len(leaf) for path, leaf in outputs if path.endswith("attention/output")}
    )


def without_head(params: PyTree, attention: str, head: int) -> PyTree:
    """Zero ``head`` in the output projection [H, U, D] of ``attention``."""
    leaves = flatten_dict(params, sep="/")
    output = leaves[f"{attention}/output"]
    return unflatten_dict(leaves | {f"{attention}/output": output.at[head].set(0.0)}, sep="/")


def target_log_probs(model: Module, params: PyTree, *inputs: Tokens) -> Float[Array, " T"]:
    """Return the log-probability of every token of the last input. ``inputs`` have one row."""
    logits = model.apply({"params": params}, *inputs, train=False)
    log_probs = jax.nn.log_softmax(logits[0].astype(jnp.float32))
    return jnp.take_along_axis(log_probs, jnp.asarray(inputs[-1].ids)[0][:, None], axis=1)[:, 0]


def gradients_times_inputs(model: Module, params: PyTree, *inputs: Tokens, at_once: int = 8) -> tuple[Array, ...]:
    """Return gradient x input of every target token's log-probability (Shrikumar et al. 2017).

    For each of ``inputs``, of one row, an array [T, L], summed over the width: how much the
    embedding of token ``l`` (of the last input shifted right by one) adds to the log-probability of
    target token ``t``, to first order. T backward passes, ``at_once`` in parallel.
    """

    def scored(shifts: Sequence[Array]) -> tuple[Array, list[Array]]:
        embedded: list[Array] = []
        is_inside = False

        def shift(method: Callable, arguments: tuple, options: dict, context: Any) -> Any:
            nonlocal is_inside
            if context.method_name != "embed" or is_inside:
                return method(*arguments, **options)
            # An embedding may call the method of its base class.
            is_inside = True
            output = method(*arguments, **options) + shifts[len(embedded)]
            is_inside = False
            embedded.append(output)
            return output

        with nn.intercept_methods(shift):
            return target_log_probs(model, params, *inputs), embedded

    shapes = jax.eval_shape(scored, [jnp.zeros(())] * len(inputs))[1]
    zeros = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in shapes]
    log_probs, vjp, embedded = jax.vjp(scored, zeros, has_aux=True)

    def row(cotangent: Float[Array, " T"]) -> tuple[Array, ...]:
        (gradients,) = vjp(cotangent)
        return tuple(jnp.sum(gradient * by, axis=-1)[0] for gradient, by in zip(gradients, embedded, strict=True))

    return jax.lax.map(row, jnp.eye(len(log_probs)), batch_size=at_once)


@dataclass
class ModuleCall:
    """A call of a method of the module at ``path``: its class, and the shape of its first output.

    ``inner`` are the calls made meanwhile, in order.
    """

    path: tuple[str, ...]
    kind: str
    method: str
    shape: tuple[int, ...] | None = None
    inner: list["ModuleCall"] = field(default_factory=list)


def module_calls(model: nn.Module, params: PyTree, *inputs: PyTree) -> ModuleCall:
    """Return the tree of calls in a teacher-forced pass over arrays or their shapes.

    A call that a scan or a retrace repeats is there once.
    """
    root = ModuleCall((), type(model).__name__, "__call__")
    open_calls = [root]

    def record(next_method: Any, arguments: Any, options: Any, context: nn.module.InterceptorContext) -> Any:
        module, method = context.module, context.method_name
        if method == "setup" or not module.path:
            return next_method(*arguments, **options)
        current = ModuleCall(module.path, type(module).__name__, method)
        open_calls.append(current)
        result = next_method(*arguments, **options)
        open_calls.pop()
        current.shape = next((leaf.shape for leaf in jax.tree.leaves(result) if hasattr(leaf, "shape")), None)
        siblings = open_calls[-1].inner
        if current not in siblings:
            siblings.append(current)
        return result

    def forward(params: PyTree, *inputs: PyTree) -> PyTree:
        # If ``intermediates`` are mutable, the layers of a stack are bound, and so have a path.
        with nn.intercept_methods(record):
            return call(model, params, "__call__", *inputs, train=False, mutable=["intermediates"])

    jax.eval_shape(forward, params, *inputs)
    return root
