"""References of changes of attention: the output of the whole attention."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform import equations
from transformer_jax.tools.conform.equations import AttentionInputs, distances, layer_norm, multi_head, softmax


def grouped_query(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """H / G query heads share each of G heads of keys and values (Ainslie et al. 2023, section 2.2)."""
    return _with_key_heads(inputs.settings.key_value_heads, params, inputs, mask)


def multi_query(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """All query heads share one head of keys and values (Shazeer 2019, section 3)."""
    return _with_key_heads(1, params, inputs, mask)


def _with_key_heads(number: int, params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    kernels = {name: params[name][:, :number] for name in ("key", "value")}
    return multi_head({**params, **kernels}, inputs, mask)


def latent(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Keys and values are projections of a latent c = W h (DeepSeek-AI 2024, DeepSeek-V2, equations 9 to 11)."""
    return multi_head(params, inputs._replace(memory=inputs.memory @ params["latent_kernel"]), mask)


def qk_norm(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """softmax(LN(Q) LN(K)^T / sqrt(K)) V (Dehghani et al. 2023, section 2)."""
    gains, epsilon = params["changes_qk_norm"], inputs.model.norm_epsilon
    return multi_head(
        params,
        inputs,
        mask,
        queries=lambda query: layer_norm(query, gains["query_gain"], 0.0, epsilon),
        keys=lambda key: layer_norm(key, gains["key_gain"], 0.0, epsilon),
    )


def cosine(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """softmax(g cos(q, k)) V, with a factor g of each head (Henry et al. 2020, equation 4)."""

    def unit(vectors: np.ndarray) -> np.ndarray:
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

    factor = params["changes_cosine"]["factor"][:, None, None] * np.sqrt(inputs.model.head_key_size)
    return multi_head(params, inputs, mask, queries=unit, keys=unit, scores=lambda scores: scores * factor)


def soft_cap(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """cap tanh(score / cap) (Gemma 2, 2024, section 2)."""
    cap = inputs.settings.cap
    return multi_head(params, inputs, mask, scores=lambda scores: cap * np.tanh(scores / cap))


def sliding_window(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """A window of ``size`` positions, or of ``size / 2`` on each side (Beltagy et al. 2020, section 3.1)."""
    distance, size = distances(inputs)[:, 0], inputs.settings.size
    is_near = distance > -size if inputs.site.is_causal else np.abs(distance) <= size // 2
    return multi_head(params, inputs, mask & is_near)


def talking_heads(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Heads are mixed before the softmax and after it (Shazeer et al. 2020, section 4)."""
    before, after = (params["changes_talking_heads"][name] for name in ("mix_scores", "mix_weights"))
    return multi_head(
        params,
        inputs,
        mask,
        scores=lambda scores: np.einsum("bhqm,hj->bjqm", scores, before),
        weights=lambda scores: np.einsum("bhqm,hj->bjqm", softmax(scores), after),
    )


def softmax_one(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """exp(s_i) / (1 + sum_j exp(s_j)) (Miller 2023)."""

    def with_one(scores: np.ndarray) -> np.ndarray:
        exponentials = np.exp(scores)
        return exponentials / (1.0 + exponentials.sum(-1, keepdims=True))

    return multi_head(params, inputs, mask, weights=with_one)


def sigmoid(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """sigmoid(s_i - ln n), n the visible keys (Ramapuram et al. 2024, equation 3)."""
    visible = np.maximum(mask.sum(-1), 1)[:, None, :, None]
    return multi_head(params, inputs, mask, weights=lambda scores: equations.sigmoid(scores - np.log(visible)))


def mup(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """q k / K times the root of the base size (Yang et al. 2022, definition 4.1)."""
    factor = np.sqrt(inputs.settings.base_key_size / inputs.model.head_key_size)
    return multi_head(params, inputs, mask, scores=lambda scores: scores * factor)
