"""Equations of the Transformer in NumPy, for references of parts, and the inputs of references.

A reference is a function ``reference(params, inputs, mask)`` of float64 arrays, written from the
equations of a paper and without the code of the part. ``inputs`` are one of the classes below, by
the kind of the part.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.array_types import Float, Int, PyTree

Reference = Callable[[PyTree, Any, Any], Any]
ArrayChange = Callable[[np.ndarray], np.ndarray]
MASKED = -1e9


class AttentionInputs(NamedTuple):
    """Inputs of a reference of ``attention``, ``positions`` or ``mixer``.

    The reference returns the output [B, Q, D].

    ``params`` are of the attention, with ``changes_NAME`` of its changes, and ``positions`` of the
    stack. ``mask`` [B, Q, M] is True if a query sees a key, before a window of the part.

    Args:
        memory: ``x`` in self-attention.
        token_ids: of the memory.
        earlier: parameters and inputs of the same attention in earlier layers.
    """

    x: Float[np.ndarray, "B Q D"]
    memory: Float[np.ndarray, "B M D"]
    positions: Int[np.ndarray, "B Q"]
    memory_positions: Int[np.ndarray, "B M"]
    settings: Any
    model: Any
    site: Any
    token_ids: Int[np.ndarray, "B M"] | None = None
    earlier: tuple[tuple[PyTree, "AttentionInputs"], ...] = ()


class LayerInputs(NamedTuple):
    """Inputs of a reference of a part of a layer.

    The part is a ``norm``, ``feed_forward``, ``residual``, ``projection`` or ``initialization``.

    ``params`` are of the module. ``mask`` [B, L] is True for tokens. The reference returns the
    norm, the output or the logits of ``x``. For a ``residual`` it returns the pair ``before(x)``,
    ``after(x, y)``. For an ``initialization``, ``params`` are the initial values without it, by
    path, and the reference returns factors by path.
    """

    x: Float[np.ndarray, "B L D"]
    y: Any
    settings: Any
    model: Any
    site: Any


class LossInputs(NamedTuple):
    """Inputs of a reference of a ``loss_term``.

    The reference returns the sum over the tokens of ``mask`` [B, T].

    ``params`` are of the term.

    Args:
        logits: of every pass. The first is the pass of the loss.
        hidden: before ``matrix`` [V, D], of the first pass.
        feed_forward: parameters and input of the feed-forward layers of the first pass.
        parts: settings by part.
    """

    logits: list[Float[np.ndarray, "B T V"]]
    labels: Int[np.ndarray, "B T"]
    hidden: Float[np.ndarray, "B T D"]
    matrix: Float[np.ndarray, "V D"]
    feed_forward: list[tuple[PyTree, np.ndarray]]
    smoothing: float
    settings: Any
    model: Any
    parts: Mapping[str, Any]


class UpdateInputs(NamedTuple):
    """Inputs of a reference of a part of training, called with a ``mask`` of None.

    A part is an ``optimizer``, ``averaging``, ``schedule`` or ``after_update``.

    Parameters and gradients are dictionaries by path. ``gradients`` are of all updates, at
    parameters that stay. The reference returns

    - of an optimizer the direction of the last update, which the learning rate multiplies and the
      parameters lose,
    - of an averaging the evaluated parameters after updates by sgd with the learning rate ``rate``,
    - of a schedule the learning rates of the updates ``numbers``,
    - of an ``after_update`` the changed parameters, by its ``statistics`` of a batch.
    """

    gradients: list[dict[str, np.ndarray]]
    rate: float
    numbers: Int[np.ndarray, " N"]
    hyperparameters: Any
    settings: Any
    model: Any
    statistics: Mapping[str, np.ndarray] = MappingProxyType({})


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def multi_head(
    params: Mapping[str, Any],
    inputs: AttentionInputs,
    mask: np.ndarray,
    *,
    queries: ArrayChange = np.asarray,
    keys: ArrayChange = np.asarray,
    values: ArrayChange = np.asarray,
    scores: ArrayChange = np.asarray,
    weights: ArrayChange = softmax,
    heads: ArrayChange = np.asarray,
) -> np.ndarray:
    """Compute multi-head attention (Vaswani et al. 2017, section 3.2.2) with changes of its arrays.

    ``queries``, ``keys`` and ``values`` [B, H, L, K] are changed after their projection, ``scores``
    [B, H, Q, M] after the division by sqrt(K) and before the mask, ``heads`` [B, H, Q, U] before
    the output projection. ``weights`` are a function of masked scores, by default their softmax.
    """
    query, key, value = (
        np.einsum("bld,dhk->bhlk", x, params[name])
        for x, name in ((inputs.x, "query"), (inputs.memory, "key"), (inputs.memory, "value"))
    )
    # Query head h uses key head h // (H / G).
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
    product = scores(np.einsum("bhqk,bhmk->bhqm", queries(query), keys(key)) / np.sqrt(query.shape[-1]))
    attended = weights(np.where(mask[:, None], product, MASKED))
    output = heads(np.einsum("bhqm,bhmu->bhqu", attended, values(value)))
    return np.einsum("bhqu,hud->bqd", output, params["output"])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    return np.exp(-np.logaddexp(0.0, -x))


def layer_norm(x: np.ndarray, scale: np.ndarray | float, bias: np.ndarray | float, epsilon: float) -> np.ndarray:
    """Return the layer norm over the last axis (Ba et al. 2016, section 3.1)."""
    return scale * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) + bias


def rms_norm(x: np.ndarray, scale: np.ndarray | float, epsilon: float) -> np.ndarray:
    """Return RMSNorm over the last axis (Zhang and Sennrich 2019, equation 4)."""
    return scale * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon)


def feed_forward(params: Mapping[str, Any], x: np.ndarray, activation: ArrayChange) -> np.ndarray:
    """Return activation(x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2)."""
    wide = activation(x @ params["wide_kernel"] + params["wide_bias"])
    return wide @ params["narrow_kernel"] + params["narrow_bias"]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def gelu(x: np.ndarray) -> np.ndarray:
    """Return the approximation of x Phi(x) by a tanh (Hendrycks and Gimpel 2016, section 2)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def cross_entropy(logits: np.ndarray, labels: np.ndarray, smoothing: float) -> np.ndarray:
    """Return -(1 - eps) log p(label) - eps mean log p by token (Szegedy et al. 2016, section 7)."""
    log_p = log_softmax(logits)
    of_label = np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]
    return -(1.0 - smoothing) * of_label - smoothing * log_p.mean(-1)


def unit_norm(x: np.ndarray) -> np.ndarray:
    """Return x / |x| over the last axis."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def rotated(vectors: np.ndarray, positions: np.ndarray, base: float = 10_000.0) -> np.ndarray:
    """Multiply pairs of dimensions of [B, H, L, K] by exp(i m base^(-2 j / K)) (Su et al. 2021)."""
    pairs = vectors[..., 0::2] + 1j * vectors[..., 1::2]
    pairs = pairs * np.exp(1j * positions[:, None, :, None] * base ** (-np.arange(pairs.shape[-1]) / pairs.shape[-1]))
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(vectors.shape)


def distances(inputs: AttentionInputs) -> np.ndarray:
    """Return key position minus query position [B, 1, Q, M]."""
    return (inputs.memory_positions[:, None] - inputs.positions[:, :, None])[:, None]
