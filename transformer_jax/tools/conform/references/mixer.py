"""References of mixers: recurrences, position by position."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform.equations import AttentionInputs, relu, sigmoid


def ssru(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """c_t = f_t c_{t-1} + (1 - f_t) W x_t, output ReLU(c_t) (Kim et al. 2019, section 3.1)."""
    forget = sigmoid(inputs.x @ params["forget_kernel"] + params["forget_bias"])
    candidate, states = inputs.x @ params["candidate_kernel"], np.zeros_like(inputs.x)
    for t in range(inputs.x.shape[1]):
        before = np.where(inputs.positions[:, t, None] > 0, states[:, t - 1], 0.0)
        states[:, t] = forget[:, t] * before + (1.0 - forget[:, t]) * candidate[:, t]
    return relu(states)


def gated_linear_attention(params: Any, inputs: AttentionInputs, mask: np.ndarray) -> np.ndarray:
    """S_t = g_t S_{t-1} + k_t v_t^T, o_t = S_t^T q_t over its root mean square (Yang et al. 2024, equations 3 and 4)."""
    query, key, value = (np.einsum("bld,dhk->blhk", inputs.x, params[name]) for name in ("query", "key", "value"))
    gate = sigmoid(inputs.x @ params["gate_kernel"] + params["gate_bias"]) ** (1.0 / inputs.settings.temperature)
    state, outputs = np.zeros((*key[:, 0].shape, value.shape[-1])), np.zeros_like(value)
    for t in range(inputs.x.shape[1]):
        state = np.where(inputs.positions[:, t, None, None, None] > 0, gate[:, t, :, None, None] * state, 0.0)
        state = state + np.einsum("bhk,bhu->bhku", key[:, t] / np.sqrt(key.shape[-1]), value[:, t])
        outputs[:, t] = np.einsum("bhku,bhk->bhu", state, query[:, t])
    outputs /= np.sqrt(np.mean(outputs**2, axis=-1, keepdims=True) + 1e-5)
    return np.einsum("blhu,hud->bld", outputs, params["output"])
