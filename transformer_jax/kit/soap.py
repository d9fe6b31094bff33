"""SOAP: Adam in the eigenbases of Shampoo's covariances of the gradient (Vyas et al. 2024)."""

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config import Hyperparameters
from transformer_jax.config.checks import setting
from transformer_jax.config.plugins import register
from transformer_jax.training.optimizers import NEVER_DECAYED
from transformer_jax.training.sharding import path_of

Sides = tuple[Array | None, Array | None]
"""An array [E, N, N] for the rows of E matrices and one for their columns; None keeps the axes."""
matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


@dataclass(frozen=True)
class SoapSettings:
    """Settings of the bases; the moments and the covariances have optimizer.b1 and b2, both 0.95 in the paper."""

    precondition_every: int = setting(10, "Updates from one turn of the bases to the next.")
    max_size: int = setting(2048, "Largest side of a matrix that gets a basis; a longer one keeps its axes.")


class SoapState(NamedTuple):
    """Moments as the parameters, the second in the bases; ``Sides`` of covariances and of bases."""

    num_updates: Array
    mu: PyTree
    nu: PyTree
    covariances: PyTree
    bases: PyTree


@register("optimizer", "soap", settings=SoapSettings)
def soap(settings: SoapSettings, hyperparameters: Hyperparameters) -> list[optax.GradientTransformation]:
    """Adam in bases in which covariances of the gradient are diagonal (Vyas et al. 2024, algorithms 3 and 4).

    Kernels and embeddings are matrices; biases and norms have Adam. The first update finds the bases and changes no parameter,
    as in the authors' code; weight decay, which comes after, does. Bases are replicated on all devices: the state of the base
    model is 3.3 times Adam's, or 1.7 times with max_size=1024.
    """
    b1, b2 = hyperparameters.b1, hyperparameters.b2

    def init(params: PyTree) -> SoapState:
        def zeros(path: tuple, leaf: AnyArray) -> tuple[Array | None, ...]:
            stack, *sizes = matrix_shape(path_of(path), leaf.shape)
            return tuple(jnp.zeros((stack, n, n)) if 1 < n <= settings.max_size else None for n in sizes)

        sides = [jax.tree_util.tree_map_with_path(zeros, params) for _ in range(2)]
        moments = [optax.tree.zeros_like(params) for _ in range(2)]
        return SoapState(jnp.zeros((), jnp.int32), *moments, *sides)

    def update(gradient: PyTree, state: SoapState, params: PyTree = None) -> tuple[PyTree, SoapState]:
        covariances = jax.tree.map(partial(averaged, b2), gradient, state.covariances)
        gradient = jax.tree.map(lambda leaf: jnp.where(state.num_updates == 0, 0.0, leaf), gradient)
        mu = optax.tree.update_moment(gradient, state.mu, b1, 1)
        nu = optax.tree.update_moment(jax.tree.map(rotated, gradient, state.bases), state.nu, b2, 2)
        count = jnp.maximum(state.num_updates, 1)

        def step(mu: Array, nu: Array, bases: Sides) -> Array:
            mean, square = rotated(mu, bases) / (1 - b1**count), nu / (1 - b2**count)
            return rotated(mean / (jnp.sqrt(square) + hyperparameters.epsilon), bases, back=True)

        # After the step: an update is not rotated by bases that its own gradient turned.
        is_due = state.num_updates % settings.precondition_every == 0
        kind = jnp.where(state.num_updates == 0, 0, jnp.where(is_due, 1, 2))
        bases = lax.switch(kind, (eigenvectors, turned, lambda _, bases: bases), covariances, state.bases)
        after = SoapState(optax.safe_increment(state.num_updates), mu, nu, covariances, bases)
        return jax.tree.map(step, mu, nu, state.bases), after

    return [optax.GradientTransformation(init, update)]


def matrix_shape(path: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Number of matrices in a parameter, rows and columns: outputs [H, K, D] have H K rows, experts a matrix each."""
    if len(shape) < 2 or re.search(NEVER_DECAYED, path):
        return 1, 1, 1
    if "experts_" in path:
        return shape[0], shape[1], shape[2]
    rows = 2 if path.endswith("attention/output") else 1
    return 1, math.prod(shape[:rows]), math.prod(shape[rows:])


def as_matrices(leaf: Array, sides: Sides) -> Array:
    """[E, M, N] of a parameter, one of whose sides has an array."""
    (stack, *_), *_ = (side.shape for side in sides if side is not None)
    return leaf.reshape(stack, *(-1 if side is None else side.shape[1] for side in sides))


def averaged(decay: Array, gradient: Array, covariances: Sides) -> tuple[Array | None, ...]:
    """Moving averages of G Gᵀ and Gᵀ G."""
    if all(side is None for side in covariances):
        return covariances
    matrices = as_matrices(gradient, covariances)
    return tuple(
        None if old is None else decay * old + (1 - decay) * matmul(each, each.mT)
        for each, old in zip((matrices, matrices.mT), covariances, strict=True)
    )


def eigenvectors(covariances: PyTree, bases: PyTree) -> PyTree:
    """The eigenvectors of covariances, the one of the largest eigenvalue first."""
    return jax.tree.map(lambda each: jnp.linalg.eigh(each)[1][:, :, ::-1], covariances)


def turned(covariances: PyTree, bases: PyTree) -> PyTree:
    """A step of power iteration (algorithm 4)."""
    return jax.tree.map(lambda each, basis: jnp.linalg.qr(matmul(each, basis))[0], covariances, bases)


def rotated(leaf: Array, bases: Sides, back: bool = False) -> Array:
    """Q_Lᵀ G Q_R, or ``back`` from it, in the shape of the parameter."""
    if all(side is None for side in bases):
        return leaf
    matrices = as_matrices(leaf, bases)
    left, right = (each.mT if back and each is not None else each for each in bases)
    matrices = matrices if left is None else matmul(left.mT, matrices)
    return (matrices if right is None else matmul(matrices, right)).reshape(leaf.shape)
