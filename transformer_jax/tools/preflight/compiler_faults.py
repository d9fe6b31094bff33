"""Small programs that compilers of earlier releases of JAX computed wrongly, by the number of the issue.

They run on the CPU in a separate process, since some of these faults crash or hang it.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = 1e-4
"""Relative error; rounding in these programs is a hundred times smaller."""
TIMEOUT = 120.0


def products_with_each_row() -> float:
    """The squared length of ``matrix @ row`` for more rows than 2^15."""
    numbers = jnp.arange(2**15 + 1, dtype=jnp.float32)
    rows = jnp.stack([numbers, numbers, 0 * numbers], axis=1)
    lengths = jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))
    return relative_error(jax.jit(lengths)(rows), 2 * np.arange(2**15 + 1, dtype=np.float64) ** 2)


def sum_at_rank_eight() -> float:
    """A product of arrays of rank 8, one of them broadcast, summed along one axis."""

    @jax.jit
    def summed(narrow: jax.Array, wide: jax.Array) -> jax.Array:
        return jnp.log(jnp.maximum(jnp.sum(narrow[..., None, None, None, None, None] * wide, axis=2), 1e-16))

    result = summed(jnp.ones((10, 4, 6)), jnp.ones((10, 4, 6, 9, 9, 9, 9, 9)))
    return relative_error(result, np.full(result.shape, np.log(6.0)))


def sum_beside_a_single_entry() -> float:
    """A product of arrays of rank 7, one of whose dimensions is 1, summed along another."""
    left, right = np.random.default_rng(0).standard_normal((2, 3, 1, 2, 2, 8, 8, 8), np.float32)
    return relative_error(jax.jit(lambda x, y: jnp.sum(x * y, axis=3))(left, right), np.sum(left * right, axis=3))


def gradient_of_set_attention() -> float:
    """The gradient of a classifier with attention among the members of sets of ten, against the same without jit."""
    random = np.random.default_rng(0)
    members = random.standard_normal((512, 10, 18), np.float32)
    labels = random.integers(0, 8, 512)
    shapes = {"in": (18, 128), "query": (128, 4, 32), "key": (128, 4, 32), "value": (128, 4, 32), "out": (128, 8)}
    params = {name: 0.1 * random.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        hidden = jax.nn.relu(members @ params["in"])
        query, key, value = (jnp.einsum("bpd,dhk->bphk", hidden, params[name]) for name in ("query", "key", "value"))
        weights = jax.nn.softmax(jnp.einsum("bphk,bqhk->bhpq", query, key) / 32**0.5)
        hidden = hidden + jnp.einsum("bhpq,bqhk->bphk", weights, value).reshape(512, 10, 128)
        scores = jax.nn.log_softmax(jnp.mean(hidden, axis=1) @ params["out"])
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    compiled = jax.jit(jax.grad(loss))(params)
    with jax.disable_jit():
        expected = jax.grad(loss)(params)
    return max(relative_error(compiled[name], np.asarray(expected[name])) for name in params)


def relative_error(found: jax.Array, expected: np.ndarray) -> float:
    """The largest error of an entry divided by the largest expected entry; infinite for NaN."""
    wanted = np.asarray(expected, np.float64)
    error = np.max(np.abs(np.asarray(found, np.float64) - wanted), initial=0.0)
    error /= max(np.max(np.abs(wanted), initial=0.0), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


FAULTS = {
    "jax 39103": products_with_each_row,
    "jax 39257": sum_at_rank_eight,
    "jax 40412": sum_beside_a_single_entry,
    "jax 39264": gradient_of_set_attention,
}


def reproduced() -> dict[str, str]:
    """Runs each program here; the result by issue is empty if it was right, else a few words.

    One process runs all programs. If a program ends it, or takes longer than ``TIMEOUT`` seconds, another runs the rest.
    """
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    pending, found = list(FAULTS), {}
    while pending:
        command = [sys.executable, "-P", __file__, *pending]
        try:
            process = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
            output, ending = process.stdout, f"ended with status {process.returncode}"
        except subprocess.TimeoutExpired as error:
            output, ending = (error.stdout or b"").decode(), f"took more than {TIMEOUT:.0f} s"
        for line in output.splitlines():
            off = float(line)
            found[pending.pop(0)] = "" if off <= TOLERANCE else f"relative error {off:.1e}"
        if pending:
            found[pending.pop(0)] = ending
    return found


if __name__ == "__main__":
    for issue in sys.argv[1:]:
        sys.stdout.write(f"{FAULTS[issue]()}\n")
        sys.stdout.flush()
