"""Attention readings from the records of a pass."""

from collections.abc import Mapping

import numpy as np

from transformer_jax.explorer.reading import HEAD, LAYER, AttentionReading, NamedArray
from transformer_jax.models.inspection import AttentionRecord

# By kind: where its modules are, and the token axes that its rows and columns are.
KINDS = {
    "encoder": ("encoder", "self_attention", "source", "source"),
    "decoder": ("decoder", "self_attention", "target", "input"),
    "cross": ("decoder", "cross_attention", "target", "source"),
}


def attention_readings(records: Mapping[str, AttentionRecord], lengths: Mapping[str, int]) -> list[AttentionReading]:
    """Every kind of attention that a model has, of the first row of a batch, cut to the ``lengths`` of the token axes."""
    found = []
    for kind, (prefix, suffix, rows, columns) in KINDS.items():
        own = [record for path, record in records.items() if path.startswith(prefix) and path.endswith(suffix)]
        if own:
            found.append(_reading(kind, own, rows, columns, lengths[rows], lengths[columns]))
    return found


def _reading(
    kind: str, records: list[AttentionRecord], rows: str, columns: str, num_rows: int, num_columns: int
) -> AttentionReading:
    weights = np.stack([np.asarray(each.weights[0, :, :num_rows, :num_columns], np.float32) for each in records])
    transformed = np.stack([np.asarray(each.transformed[0, :, :num_columns], np.float32) for each in records])
    return AttentionReading(
        kind,
        rows,
        columns,
        NamedArray((LAYER, HEAD, rows, columns), weights),
        NamedArray((LAYER, HEAD, columns), np.linalg.norm(transformed, axis=-1)),
        NamedArray((LAYER, rows, columns), joint_norms(weights, transformed)),
    )


def joint_norms(weights_LHQM: np.ndarray, transformed_LHMD: np.ndarray) -> np.ndarray:
    """Norm of the sum over heads of weight times transformed value [L, Q, M] (Kobayashi et al. 2020, section 3.2).

    By the products of the transformed values of two heads, so that no [Q, M, D] is made.
    """
    products_LMHG = np.einsum("LHMD,LGMD->LMHG", transformed_LHMD, transformed_LHMD, optimize=True)
    weights_LMQH = np.transpose(weights_LHQM, (0, 3, 2, 1))
    squares_LMQ = ((weights_LMQH @ products_LMHG) * weights_LMQH).sum(axis=-1)
    return np.sqrt(np.maximum(np.swapaxes(squares_LMQ, 1, 2), 0.0))
