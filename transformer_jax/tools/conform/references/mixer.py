"""References of mixers: recurrences, position by position."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import AttentionInputs, relu, rms_norm, sigmoid


def ssru(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Return ReLU(c_t), c_t = f_t c_{t-1} + (1 - f_t) W x_t (Kim et al. 2019, section 3.1)."""
    forget = sigmoid(inputs.x @ params["forget_kernel"] + params["forget_bias"])
    candidate, states = inputs.x @ params["candidate_kernel"], np.zeros_like(inputs.x)
    for t in range(inputs.x.shape[1]):
        before = np.where(inputs.positions[:, t, None] > 0, states[:, t - 1], 0.0)
        states[:, t] = forget[:, t] * before + (1.0 - forget[:, t]) * candidate[:, t]
    return relu(states)


def gated_delta_net(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Return S_t^T q_t, S_t = a (1 - b k k^T) S_{t-1} + b k v^T (Yang et al. 2024, equation 10)."""
    projected = [
        np.einsum("bld,dhk->blhk", inputs.x, params[name]) for name in ("query", "key", "value", "output_gate")
    ]
    query, key, value, gate = (x * sigmoid(x) for x in projected)
    query, key = (x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + 1e-6) for x in (query, key))
    strength = sigmoid(inputs.x @ params["strength_kernel"])
    step = np.log1p(np.exp(inputs.x @ params["decay_kernel"] + params["decay_bias"]))
    decay = np.exp(-np.exp(params["log_rate"]) * step)
    state, outputs = np.zeros((*key[:, 0].shape, value.shape[-1])), np.zeros_like(value)
    for t in range(inputs.x.shape[1]):
        state = np.where(inputs.positions[:, t, None, None, None] > 0, decay[:, t, :, None, None] * state, 0.0)
        new = strength[:, t, :, None] * (value[:, t] - np.einsum("bhku,bhk->bhu", state, key[:, t]))
        state = state + np.einsum("bhk,bhu->bhku", key[:, t], new)
        outputs[:, t] = np.einsum("bhku,bhk->bhu", state, query[:, t]) / np.sqrt(key.shape[-1])
    normalized = rms_norm(outputs, params["head_scale"], 1e-5)
    return np.einsum("blhu,hud->bld", normalized * gate, params["output"])


def gated_linear_attention(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """Return S_t^T q_t, S_t = g_t S_{t-1} + k_t v_t^T, normalized (Yang et al. 2024, eq. 3)."""
    query, key, value = (np.einsum("bld,dhk->blhk", inputs.x, params[name]) for name in ("query", "key", "value"))
    gate = sigmoid(inputs.x @ params["gate_kernel"] + params["gate_bias"]) ** (1.0 / inputs.settings.temperature)
    state, outputs = np.zeros((*key[:, 0].shape, value.shape[-1])), np.zeros_like(value)
    for t in range(inputs.x.shape[1]):
        state = np.where(inputs.positions[:, t, None, None, None] > 0, gate[:, t, :, None, None] * state, 0.0)
        state = state + np.einsum("bhk,bhu->bhku", key[:, t] / np.sqrt(key.shape[-1]), value[:, t])
        outputs[:, t] = np.einsum("bhku,bhk->bhu", state, query[:, t])
    return np.einsum("blhu,hud->bld", rms_norm(outputs, 1.0, 1e-5), params["output"])
