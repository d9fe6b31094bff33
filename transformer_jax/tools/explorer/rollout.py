"""Attention rollout: attention followed through the layers, residual connections included (Abnar and Zuidema 2020)."""

import numpy as np

SHARE_OF_ATTENTION = 0.5


def with_residual(weights_LHQM: np.ndarray) -> np.ndarray:
    """0.5 A + 0.5 I of every layer, A the mean of its heads: [L, H, N, N] to [L, N, N] (section 3)."""
    mean = weights_LHQM.mean(axis=1)
    return SHARE_OF_ATTENTION * mean + (1 - SHARE_OF_ATTENTION) * np.eye(mean.shape[-1])


def rollout(weights_LHQM: np.ndarray) -> np.ndarray:
    """From every layer back to the embeddings: [L, H, N, N] to [L, N, N], rows that sum to 1 (section 3)."""
    layers = [np.eye(weights_LHQM.shape[-1])]
    for mixing in with_residual(weights_LHQM):
        layers.append(mixing @ layers[-1])
    return np.stack(layers[1:])


def decoder_rollout(
    own_LHTT: np.ndarray, cross_LHTS: np.ndarray, source_SS: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """From every decoder layer back to the embeddings of both sides: [L, T, T] and [L, T, S]; rows of both sum to 1.

    The paper has stacks of self-attention only. Here a layer mixes first target states, then, half and half, the state and
    what attention fetches from the top of the encoder, whose own rollout is ``source_SS``.
    """
    to_target, to_source = np.eye(own_LHTT.shape[-1]), np.zeros(cross_LHTS.shape[-2:])
    layers = []
    for own, cross in zip(with_residual(own_LHTT), cross_LHTS.mean(axis=1), strict=True):
        to_target, to_source = own @ to_target, own @ to_source
        kept = 1 - SHARE_OF_ATTENTION
        to_target, to_source = kept * to_target, kept * to_source + SHARE_OF_ATTENTION * cross @ source_SS
        layers.append((to_target, to_source))
    return np.stack([target for target, _ in layers]), np.stack([source for _, source in layers])
