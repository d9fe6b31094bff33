"""References of loss terms: sums over tokens."""

from typing import Any

import numpy as np

from transformer_jax.tools.conform import equations
from transformer_jax.tools.conform.equations import AttentionInputs, LossInputs, cross_entropy, log_softmax, softmax

ACTIVATIONS = {"relu": equations.relu, "gelu": equations.gelu}


def z_loss(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """Return weight log(Z)^2 (Chowdhery et al. 2022, PaLM, section 5)."""
    log_normalizers = np.log(np.exp(inputs.logits[0]).sum(-1))
    return float(inputs.settings.weight * np.sum(log_normalizers**2 * mask))


def unigram_smoothing(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """Return the cross entropy with label frequencies mixed in, minus the one without."""
    log_p, weight = log_softmax(inputs.logits[0]), inputs.settings.weight
    one_hot = np.eye(log_p.shape[-1])[inputs.labels]
    frequencies = one_hot[mask].mean(0)
    return float(np.sum(((one_hot - ((1 - weight) * one_hot + weight * frequencies)) * log_p).sum(-1) * mask))


def r_drop(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """Return the loss of pass 2 + weight / 2 (KL(p || q) + KL(q || p)) (Wu et al. 2021, eq. 4)."""
    log_p, log_q = (log_softmax(logits) for logits in inputs.logits)
    divergence = (np.exp(log_p) * (log_p - log_q) + np.exp(log_q) * (log_q - log_p)).sum(-1)
    losses = cross_entropy(inputs.logits[1], inputs.labels, inputs.smoothing)
    return float(np.sum((losses + 0.5 * inputs.settings.weight * divergence) * mask))


def load_balance(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """Return tokens times the sum of N sum_i f_i P_i over layers (Fedus et al. 2022, eq. 4).

    Padding counts for f and P.
    """
    total, top = 0.0, inputs.parts["mixture_of_experts"].experts_per_token
    for of_layer, x in inputs.feed_forward:
        p = softmax(x @ of_layer["router_kernel"])
        shares = (p >= np.sort(p, axis=-1)[..., -top, None]).mean((0, 1)) / top
        total += p.shape[-1] * np.sum(shares * p.mean((0, 1)))
    return float(inputs.settings.weight * total * mask.sum())


def multi_token(params: Any, inputs: LossInputs, mask: np.ndarray) -> float:
    """Return weight sum_i -log p_i(x_{t+i}), p_i by one more layer (Gloeckle et al. 2024)."""
    total, is_pre, activation = 0.0, inputs.model.normalization == "pre", ACTIVATIONS[inputs.model.feed_forward]
    rows, length, _ = inputs.hidden.shape
    visible = np.tril(np.ones((rows, length, length), bool)) & mask[:, None]
    positions = np.tile(np.arange(length), (rows, 1))

    def normalized(x: np.ndarray, of_module: Any) -> np.ndarray:
        return equations.layer_norm(x, **of_module["norm"], epsilon=inputs.model.norm_epsilon)

    for ahead in range(2, inputs.settings.tokens + 1):
        layer, x = params[f"head_{ahead}"]["layer"], inputs.hidden
        for name in ("self_attention", "feed_forward"):
            before = normalized(x, layer[f"{name}_residual"]) if is_pre else x
            if name == "self_attention":
                attention = AttentionInputs(before, before, positions, positions, None, inputs.model, None)
                x = x + equations.multi_head(layer[name], attention, visible)
            else:
                x = x + equations.feed_forward(layer[name], before, activation)
            x = x if is_pre else normalized(x, layer[f"{name}_residual"])
        x = normalized(x, params[f"head_{ahead}"]) if is_pre else x
        logits, later = (x @ inputs.matrix.T)[:, : 1 - ahead], inputs.labels[:, ahead - 1 :]
        total += np.sum(cross_entropy(logits, later, inputs.smoothing) * mask[:, ahead - 1 :])
    return float(inputs.settings.weight * total)
