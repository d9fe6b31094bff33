"""Readings with random weights, as a model of so many layers and heads would have them."""

import numpy as np

from transformer_jax.tools.explorer.reading import HEAD, LAYER, AttentionReading, NamedArray, Reading

SHAPES = {"encoder": ("source", "source"), "decoder": ("target", "input"), "cross": ("target", "source")}


def made_attention(
    kind: str, sizes: dict[str, int], layers: int, heads: int, rng: np.random.Generator
) -> AttentionReading:
    rows, columns = SHAPES[kind]
    num_rows, num_columns = sizes[rows], sizes[columns]
    scores = 3 * rng.standard_normal((layers, heads, num_rows, num_columns)).astype(np.float32)
    if kind == "decoder":
        scores = np.where(np.tril(np.ones((num_rows, num_columns), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mean = weights.mean(axis=1)
    return AttentionReading(
        kind,
        rows,
        columns,
        NamedArray((LAYER, HEAD, rows, columns), weights),
        NamedArray((LAYER, HEAD, columns), rng.uniform(1, 2, (layers, heads, num_columns))),
        NamedArray((LAYER, "pair", columns), rng.uniform(-0.2, 0.9, (layers, heads * (heads - 1) // 2, num_columns))),
        NamedArray((LAYER, rows, columns), mean) if layers > 1 else None,
    )


def made_reading(source: list[str], target: list[str], *, layers: int = 2, heads: int = 4, kinds=SHAPES) -> Reading:
    rng = np.random.default_rng(0)
    tokens = {"source": source, "target": target, "input": ["<s>", *target[:-1]]}
    sizes = {name: len(pieces) for name, pieces in tokens.items()}
    gradients = {
        kind: NamedArray(SHAPES[kind], rng.standard_normal([sizes[axis] for axis in SHAPES[kind]]))
        for kind in ("decoder", "cross")
    }
    attentions = [made_attention(kind, sizes, layers, heads, rng) for kind in kinds]
    return Reading(
        " ".join(source), " ".join(target), tokens, attentions, gradients, rng.uniform(-2, 0, len(target)).tolist()
    )
