"""References of positions that change attention: the output of the whole attention."""

from functools import partial
from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import (
    ArrayChange,
    AttentionInputs,
    distances,
    multi_head,
    rotated,
    unit_norm,
)


def rope(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with pairs of dimensions rotated by m base^(-2 i / d) (Su et al. 2021)."""
    queries, keys = _rotations(inputs)
    return multi_head(params, inputs, mask, queries=queries, keys=keys)


def ngpt(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with scores sqrt(d_k) q k, unit vectors q, k times s_qk (Loshchilov et al. 2024)."""
    scales = (params["changes_ngpt"]["ngpt_factors"] * np.sqrt(inputs.model.d_model))[:, None]
    identity = (np.asarray, np.asarray)
    rotations = _rotations(inputs) if inputs.site.kind == "self" else identity
    # The product is divided by sqrt(d_k).
    queries, keys = (lambda vectors, rotate=rotate: unit_norm(rotate(vectors)) * scales for rotate in rotations)
    size = inputs.model.head_key_size
    return multi_head(params, inputs, mask, queries=queries, keys=keys, scores=lambda scores: scores * size)


def _rotations(inputs: AttentionInputs) -> list[ArrayChange]:
    """Return the rotations of a share of the dimensions of queries and of keys."""
    width = 2 * (int(inputs.model.head_key_size * inputs.settings.share) // 2)

    def change(positions: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        first = rotated(vectors[..., :width], positions, inputs.settings.base)
        return np.concatenate([first, vectors[..., width:]], axis=-1)

    return [partial(change, positions) for positions in (inputs.positions, inputs.memory_positions)]


def alibi(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with scores q k / sqrt(K) - 2^(-8 h / H) |distance| (Press et al. 2022, section 3)."""
    number = inputs.model.num_heads
    slopes = 2.0 ** (-8.0 * np.arange(1, number + 1) / number)[:, None, None]
    return multi_head(params, inputs, mask, scores=lambda scores: scores - slopes * np.abs(distances(inputs)))


def t5(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with a bias by bucket of distances on the scores (Raffel et al. 2020, section 2.1)."""

    def bucket(distance: int) -> int:
        buckets, first = inputs.settings.buckets, 0
        if not inputs.site.is_causal:
            buckets //= 2
            first = buckets if distance > 0 else 0
        far = max(-distance, 0) if inputs.site.is_causal else abs(distance)
        exact = buckets // 2
        if far < exact:
            return first + far
        growth = np.log(far / exact) / np.log(inputs.settings.max_distance / exact)
        return first + min(exact + int(growth * (buckets - exact)), buckets - 1)

    index = np.vectorize(bucket)(distances(inputs)[:, 0])
    biases = np.moveaxis(params["positions"]["biases"][index], 3, 1)
    return multi_head(params, inputs, mask, scores=lambda scores: scores + biases)


def shaw(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with scores q (k + a) / sqrt(K), a of the clipped distance (Shaw et al. 2018)."""
    farthest = inputs.settings.max_distance
    index = np.clip(distances(inputs)[:, 0], -farthest, farthest) + farthest
    vectors = params["changes_shaw"]["relative"][index]
    query = np.einsum("bqd,dhk->bhqk", inputs.x, params["query"])
    relative = np.einsum("bhqk,bqmk->bhqm", query, vectors) / np.sqrt(inputs.model.head_key_size)
    return multi_head(params, inputs, mask, scores=lambda scores: scores + relative)
