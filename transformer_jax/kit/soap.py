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
from transformer_jax.registry.plugins import register
from transformer_jax.training.optimizers import VECTORS
from transformer_jax.training.sharding import path_of

Sides = tuple[Array | None, ...]
"""An array [E, N, N] for the rows of E matrices and one for their columns; None keeps the axes."""
matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


@dataclass(frozen=True)
class SoapSettings:
    """Settings of the bases; moments have optimizer.b1 and b2, both 0.95 in the paper."""

    precondition_every: int = setting(10, "Updates from one change of the bases to the next.")
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
    """Adam in bases in which covariances of the gradient are diagonal (algorithms 3 and 4).

    Kernels and embeddings are matrices. Biases and norms have Adam. The first update computes the
    bases and changes no parameter, as in the authors' code, but weight decay does. Bases change by
    one power iteration as in algorithm 4. The authors' code also sorts them by their eigenvalues.
    Bases are replicated on all devices: the state of the base model is 3.3 times Adam's, or 1.7
    times with max_size=1024.
    """
    b1, b2 = hyperparameters.b1, hyperparameters.b2

    def init(params: PyTree) -> SoapState:
        def zeros(path: tuple, leaf: AnyArray) -> Sides:
            number, *sizes = matrix_shape(path_of(path), leaf.shape)
            return tuple(jnp.zeros((number, n, n)) if 1 < n <= settings.max_size else None for n in sizes)

        sides = [jax.tree_util.tree_map_with_path(zeros, params) for _ in range(2)]
        return SoapState(jnp.zeros((), jnp.int32), *[optax.tree.zeros_like(params) for _ in range(2)], *sides)

    def update(gradient: PyTree, state: SoapState, params: PyTree = None) -> tuple[PyTree, SoapState]:
        number, covariances = state.num_updates, jax.tree.map(partial(averaged, b2), gradient, state.covariances)
        gradient = jax.tree.map(lambda leaf: jnp.where(number == 0, 0.0, leaf), gradient)
        mu = optax.tree.update_moment(gradient, state.mu, b1, 1)
        nu = optax.tree.update_moment(jax.tree.map(rotated, gradient, state.bases), state.nu, b2, 2)

        def step(mu: Array, nu: Array, bases: Sides) -> Array:
            count = jnp.maximum(number, 1)
            mean, square = rotated(mu, bases) / (1 - b1**count), nu / (1 - b2**count)
            return rotated(mean / (jnp.sqrt(square) + hyperparameters.epsilon), bases, back=True)

        # After the step: an update is not rotated by bases that its own gradient changed.
        kind = jnp.where(number == 0, 0, jnp.where(number % settings.precondition_every == 0, 1, 2))
        changes = (
            # The largest eigenvalue first.
            lambda covariance, basis: jnp.linalg.eigh(covariance)[1][:, :, ::-1],
            lambda covariance, basis: jnp.linalg.qr(matmul(covariance, basis))[0],
            lambda covariance, basis: basis,
        )
        # Preflight and duels read in the scope how often the bases change.
        with jax.named_scope(f"once_in_{settings.precondition_every}"):
            bases = lax.switch(kind, [partial(jax.tree.map, change) for change in changes], covariances, state.bases)
        updates = jax.tree.map(step, mu, nu, state.bases)
        return updates, SoapState(optax.safe_increment(number), mu, nu, covariances, bases)

    return [optax.GradientTransformation(init, update)]


def matrix_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return matrices, rows and columns: outputs [H, K, D] have H K rows, experts a matrix each."""
    if len(shape) < 2 or re.search(VECTORS, path):
        return 1, 1, 1
    rows = 2 if path.endswith("attention/output") else 1
    return shape if "experts_" in path else (1, math.prod(shape[:rows]), math.prod(shape[rows:]))


def as_matrices(leaf: Array, sides: Sides) -> Array:
    """Reshape a parameter to [E, M, N], or to [1, M N, 1] if it has no bases."""
    number, *_ = [len(side) for side in sides if side is not None] or [1]
    rows, columns = (-1 if side is None else side.shape[1] for side in sides)
    return leaf.reshape(number, rows, columns if max(rows, columns) > 0 else 1)


def averaged(decay: Array, gradient: Array, covariances: Sides) -> Sides:
    """Update the moving averages of G Gᵀ and Gᵀ G."""
    matrices = as_matrices(gradient, covariances)
    pairs = zip((matrices, matrices.mT), covariances, strict=True)
    return tuple(None if old is None else decay * old + (1 - decay) * matmul(side, side.mT) for side, old in pairs)


def rotated(leaf: Array, bases: Sides, back: bool = False) -> Array:
    """Return Q_Lᵀ G Q_R, or ``back`` from it, in the shape of the parameter."""
    matrices = as_matrices(leaf, bases)
    for basis in bases:
        basis = basis if basis is None or back else basis.mT
        matrices = (matrices if basis is None else matmul(basis, matrices)).mT
    return matrices.reshape(leaf.shape)
