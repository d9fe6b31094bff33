import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding.top_k import GROUP_SIZE, top_k


@pytest.mark.parametrize("columns", [40, 2 * 3 * GROUP_SIZE + 1, 50 * GROUP_SIZE, 50 * GROUP_SIZE + 7])
def test_equals_the_full_search(columns):
    random = np.random.default_rng(columns)
    distinct = random.normal(size=(4, columns))
    with_ties = random.integers(0, 20, size=(4, columns))
    mostly_impossible = np.where(np.arange(columns) % 31 == 30, distinct, -np.inf)
    later_is_larger = np.where(np.arange(columns) == columns - 1, 2, np.arange(columns) % GROUP_SIZE == 9)[None]
    values = jnp.asarray(np.concatenate([distinct, with_ties, mostly_impossible, later_is_larger]), jnp.float32)
    best, index = top_k(values, 3)
    expected_best, expected_index = jax.lax.top_k(values, 3)
    np.testing.assert_array_equal(best, expected_best)
    np.testing.assert_array_equal(index, expected_index)


def test_columns_stay_inside_when_all_is_impossible():
    values = jnp.full((2, 7 * GROUP_SIZE + 1), -jnp.inf)
    best, index = top_k(values, 3)
    assert (best == -jnp.inf).all()
    assert (index < values.shape[1]).all()
