"""Readings with random weights."""

import numpy as np

from transformer_jax.models.inspection import ATTENTION_KINDS
from transformer_jax.tools.explorer.readings import AttentionReading, Reading


def made_attention(kind: str, shape: tuple[int, int], layers: int, heads: int, power: int, rng) -> AttentionReading:
    scores = 3 * rng.standard_normal((layers, heads, *shape)).astype(np.float32)
    if kind == "decoder":
        scores = np.where(np.tril(np.ones(shape, bool)), scores, -np.inf)
    weights = np.exp(power * (scores - scores.max(axis=-1, keepdims=True)))
    weights /= weights.sum(axis=-1, keepdims=True)
    norms = rng.uniform(1, 2, (layers, heads, shape[1]))
    cosines = rng.uniform(-0.2, 0.9, (layers, heads * (heads - 1) // 2, shape[1]))
    rollout = weights.mean(axis=1) if layers > 1 else None
    axes = ATTENTION_KINDS[kind]
    return AttentionReading(kind, axes.rows, axes.columns, weights, norms, cosines, rollout)


def made_reading(
    source: list[str], target: list[str], *, layers=2, heads=4, power=1, kinds=tuple(ATTENTION_KINDS)
) -> Reading:
    rng = np.random.default_rng(0)
    tokens = {"source": source, "target": target, "input": ["<s>", *target[:-1]]}
    shapes = {kind: (len(tokens[axes.rows]), len(tokens[axes.columns])) for kind, axes in ATTENTION_KINDS.items()}
    gradients = {kind: rng.standard_normal(shapes[kind]) for kind in ("decoder", "cross")}
    attentions = [made_attention(kind, shapes[kind], layers, heads, power, rng) for kind in kinds]
    log_probs = rng.uniform(-2, 0, len(target)).tolist()
    return Reading(" ".join(source), " ".join(target), tokens, attentions, gradients, log_probs)
