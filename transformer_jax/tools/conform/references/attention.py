"""References of changes of attention: the output of the whole attention."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform import equations
from transformer_jax.tools.conform.equations import MASKED, AttentionInputs, distances, multi_head, softmax


def grouped_query(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Share G heads of keys and values among H / G query heads (Ainslie et al. 2023)."""
    return _with_key_heads(inputs.settings.key_value_heads, params, inputs, mask)


def multi_query(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Share one head of keys and values among all query heads (Shazeer 2019, section 3)."""
    return _with_key_heads(1, params, inputs, mask)


def _with_key_heads(number: int, params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    kernels = {name: params[name][:, :number] for name in ("key", "value")}
    return multi_head({**params, **kernels}, inputs, mask)


def value_residual(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend to a V_1 + b V_n, V_1 of the first layer (Zhou et al. 2024, Learnable-ResFormer)."""
    of_first, first_inputs = inputs.earlier[0] if inputs.earlier else (params, inputs)
    first = np.einsum("bld,dhk->bhlk", first_inputs.memory, of_first["value"])
    a, b = params["changes_value_residual"]["shares"]
    return multi_head(params, inputs, mask, values=lambda value: a * first + b * value)


def qk_norm(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with softmax(LN(Q) LN(K)^T / sqrt(K)) (Dehghani et al. 2023, section 2)."""
    gains, epsilon = params["changes_qk_norm"], inputs.model.norm_epsilon
    return multi_head(
        params,
        inputs,
        mask,
        queries=lambda query: equations.layer_norm(query, gains["query_gain"], 0.0, epsilon),
        keys=lambda key: equations.layer_norm(key, gains["key_gain"], 0.0, epsilon),
    )


def soft_cap(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with scores cap tanh(score / cap) (Gemma 2, 2024, section 2)."""
    cap = inputs.settings.cap
    return multi_head(params, inputs, mask, scores=lambda scores: cap * np.tanh(scores / cap))


def sliding_window(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend to ``size`` positions, or half on each side (Beltagy et al. 2020, section 3.1)."""
    distance, size = distances(inputs)[:, 0], inputs.settings.size
    is_near = distance > -size if inputs.site.is_causal else np.abs(distance) <= size // 2
    return multi_head(params, inputs, mask & is_near)


def talking_heads(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Mix heads before and after the softmax (Shazeer et al. 2020, section 4)."""
    before, after = (params["changes_talking_heads"][name] for name in ("mix_scores", "mix_weights"))
    return multi_head(
        params,
        inputs,
        mask,
        scores=lambda scores: np.einsum("bhqm,hj->bjqm", scores, before),
        weights=lambda scores: np.einsum("bhqm,hj->bjqm", softmax(scores), after),
    )


def softmax_one(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with weights exp(s_i) / (1 + sum_j exp(s_j)) (Miller 2023)."""
    return _with_rest(np.ones(()), params, inputs, mask)


def sigmoid(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with weights sigmoid(s_i - ln n) for n visible keys (Ramapuram et al. 2024, eq. 3)."""
    visible = np.maximum(mask.sum(-1), 1)[:, None, :, None]
    return multi_head(params, inputs, mask, weights=lambda scores: equations.sigmoid(scores - np.log(visible)))


def mup(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with scores q k sqrt(base K) / K (Yang et al. 2022, definition 4.1)."""
    factor = np.sqrt(inputs.settings.base_key_size / inputs.model.head_key_size)
    return multi_head(params, inputs, mask, scores=lambda scores: scores * factor)


def latent(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with softmax([q^C; q^R] [k^C; k^R] / sqrt(K + R)) (DeepSeek-V2, 2024, eq. 9 to 19)."""

    def compressed(x: np.ndarray, name: str) -> np.ndarray:
        c = x @ params[f"{name}_kernel"]
        norm = params.get(f"{name}_norm")
        return c if norm is None else equations.rms_norm(c, norm["scale"], 1e-6)

    def in_heads(x: np.ndarray, name: str) -> np.ndarray:
        return np.einsum("bld,dhk->bhlk", x, params[name])

    c = compressed(inputs.memory, "latent")
    of_query = compressed(inputs.x, "query_latent") if "query_latent_kernel" in params else inputs.x
    query, key, value = in_heads(of_query, "query"), in_heads(c, "key"), in_heads(c, "value")
    key, value = (np.repeat(x, query.shape[1] // x.shape[1], axis=1) for x in (key, value))
    if "rotary_key_kernel" in params:
        rotary_query = equations.rotated(in_heads(of_query, "rotary_query_kernel"), inputs.positions)
        rotary_key = equations.rotated((inputs.memory @ params["rotary_key_kernel"])[:, None], inputs.memory_positions)
        query = np.concatenate([query, rotary_query], axis=-1)
        key = np.concatenate([key, np.repeat(rotary_key, key.shape[1], axis=1)], axis=-1)
    scores = np.einsum("bhqk,bhmk->bhqm", query, key) / np.sqrt(query.shape[-1])
    weights = softmax(np.where(mask[:, None], scores, MASKED))
    return np.einsum("bhqm,bhmu,hud->bqd", weights, value, params["output"])


def gated(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend, with gates of dimensions or heads: Y * sigmoid(X W) (Qiu et al. 2025, equation 5)."""
    (kernel,) = params["changes_gated"].values()
    logits = np.tensordot(inputs.x, kernel, axes=1)
    gates = equations.sigmoid(logits.reshape(*logits.shape[:3], -1))
    return multi_head(params, inputs, mask, heads=lambda heads: heads * gates.swapaxes(1, 2))


def differential(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with softmax(Q1 K1^T) - lambda softmax(Q2 K2^T) (Ye et al. 2025, equations 1 to 3)."""
    of, initial = params["changes_differential"], inputs.settings.initial_factor
    initial = initial or 0.8 - 0.6 * np.exp(-0.3 * inputs.site.index)
    (query1, query2), (key1, key2) = of["lambda_query"], of["lambda_key"]
    factor, total = np.exp(query1 @ key1) - np.exp(query2 @ key2) + initial, np.zeros(())
    heads, key_heads = params["query"].shape[1], params["key"].shape[1]

    def weights(head: int) -> np.ndarray:
        query, key = inputs.x @ params["query"][:, head], inputs.memory @ params["key"][:, head * key_heads // heads]
        scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
        return softmax(np.where(mask, scores, MASKED))

    for head in range(0, heads, 2):
        group = head * key_heads // heads // 2 * 2
        value = np.concatenate([inputs.memory @ params["value"][:, index] for index in (group, group + 1)], axis=-1)
        attended = (weights(head) - factor * weights(head + 1)) @ value
        normalized = (1 - initial) * equations.rms_norm(attended, of["gain"], 1e-5)
        total = total + normalized @ np.concatenate([params["output"][head], params["output"][head + 1]])
    return total


def sink(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with weights exp(s_i) / (exp(b) + sum_j exp(s_j)) (gpt-oss, 2025, section 2.2)."""
    return _with_rest(np.exp(params["changes_sink"]["sinks"])[:, None, None], params, inputs, mask)


def _with_rest(rest: np.ndarray, params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    def weights(scores: np.ndarray) -> np.ndarray:
        return np.exp(scores) / (rest + np.exp(scores).sum(-1, keepdims=True))

    return multi_head(params, inputs, mask, weights=weights)


def softpick(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Attend with weights ReLU(exp(s_i) - 1) / sum_j |exp(s_j) - 1| (Zuhri et al. 2025)."""

    def weights(scores: np.ndarray) -> np.ndarray:
        terms = (np.exp(scores) - 1.0) * mask[:, None]
        return np.maximum(terms, 0.0) / (np.abs(terms).sum(-1, keepdims=True) + 1e-8)

    return multi_head(params, inputs, mask, weights=weights)
