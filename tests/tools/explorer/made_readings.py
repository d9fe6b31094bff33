"""Readings with random weights."""

import numpy as np

from transformer_jax.models.inspection import ATTENTION_KINDS
from transformer_jax.tools.explorer.readings import AttentionReading, Reading


def made_attention(
    kind: str, sizes: dict[str, int], layers: int, heads: int, rng: np.random.Generator
) -> AttentionReading:
    rows, columns = ATTENTION_KINDS[kind].rows, ATTENTION_KINDS[kind].columns
    num_rows, num_columns = sizes[rows], sizes[columns]
    scores = 3 * rng.standard_normal((layers, heads, num_rows, num_columns)).astype(np.float32)
    if kind == "decoder":
        scores = np.where(np.tril(np.ones((num_rows, num_columns), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    norms = rng.uniform(1, 2, (layers, heads, num_columns))
    cosines = rng.uniform(-0.2, 0.9, (layers, heads * (heads - 1) // 2, num_columns))
    rollout = weights.mean(axis=1) if layers > 1 else None
    return AttentionReading(kind, rows, columns, weights, norms, cosines, rollout)


def made_reading(
    source: list[str], target: list[str], *, layers: int = 2, heads: int = 4, kinds=ATTENTION_KINDS
) -> Reading:
    rng = np.random.default_rng(0)
    tokens = {"source": source, "target": target, "input": ["<s>", *target[:-1]]}
    sizes = {name: len(pieces) for name, pieces in tokens.items()}
    gradients = {
        kind: rng.standard_normal([sizes[ATTENTION_KINDS[kind].rows], sizes[ATTENTION_KINDS[kind].columns]])
        for kind in ("decoder", "cross")
    }
    attentions = [made_attention(kind, sizes, layers, heads, rng) for kind in kinds]
    log_probs = rng.uniform(-2, 0, len(target)).tolist()
    return Reading(" ".join(source), " ".join(target), tokens, attentions, gradients, log_probs)
