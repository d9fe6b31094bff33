"""Attention readings from the records of a pass."""

from collections.abc import Mapping

import numpy as np

from transformer_jax.models.inspection import KINDS, AttentionRecord, layers_by_kind
from transformer_jax.tools.explorer.reading import HEAD, LAYER, AttentionReading, NamedArray


def attention_readings(records: Mapping[str, AttentionRecord], lengths: Mapping[str, int]) -> list[AttentionReading]:
    """Every kind of attention that a model has, of the first row of a batch, cut to the ``lengths`` of the token axes."""
    return [_reading(kind, [*layers.values()], lengths) for kind, layers in layers_by_kind(records).items()]


def _reading(kind: str, records: list[AttentionRecord], lengths: Mapping[str, int]) -> AttentionReading:
    rows, columns = KINDS[kind].rows, KINDS[kind].columns
    num_rows, num_columns = lengths[rows], lengths[columns]
    weights = np.stack([np.asarray(each.weights[0, :, :num_rows, :num_columns], np.float32) for each in records])
    transformed = np.stack([np.asarray(each.transformed[0, :, :num_columns], np.float32) for each in records])
    norms = np.linalg.norm(transformed, axis=-1)
    return AttentionReading(
        kind,
        rows,
        columns,
        NamedArray((LAYER, HEAD, rows, columns), weights),
        NamedArray((LAYER, HEAD, columns), norms),
        NamedArray((LAYER, "pair", columns), cosines_of_heads(transformed, norms)),
    )


def cosines_of_heads(transformed_LHMD: np.ndarray, norms_LHM: np.ndarray) -> np.ndarray:
    """Cosines of the transformed values of two heads at each place [L, pairs, M]; 0 where one is zero."""
    first, second = np.tril_indices(transformed_LHMD.shape[1], -1)
    products = np.einsum("LPMD,LPMD->LPM", transformed_LHMD[:, first], transformed_LHMD[:, second])
    return products / np.maximum(norms_LHM[:, first] * norms_LHM[:, second], np.finfo(np.float32).tiny)
