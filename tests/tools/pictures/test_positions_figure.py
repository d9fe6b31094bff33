"""The sinusoids: a shift is one matrix, and dot products depend on the distance alone."""

import numpy as np
import pytest

from transformer_jax.config import ConfigError, resolve
from transformer_jax.layers.positions import sinusoid_table
from transformer_jax.tools.pictures.positions import cosines, learned_table, make, position_numbers, shift_matrix
from transformer_jax.tools.pictures.subject import Subject

TOLERANCE = 1e-5


@pytest.mark.parametrize("width", [6, 64])
def test_one_matrix_shifts_every_position(width):
    numbers = position_numbers(width, length=80, shifts=40)
    assert numbers.table.dtype == np.float64
    assert numbers.closed_form.max() < TOLERANCE
    assert numbers.fitted.max() < TOLERANCE
    assert len(numbers.closed_form) == len(numbers.fitted) == 40


def test_least_squares_finds_the_matrix_itself_where_few_columns_leave_no_other():
    table = sinusoid_table(105, 6, np.float64)
    fitted = np.linalg.lstsq(table[:100], table[5:], rcond=None)[0].T
    np.testing.assert_allclose(fitted, shift_matrix(5, 6), atol=TOLERANCE)
    assert position_numbers(6, length=80, shifts=5).held_out.max() < TOLERANCE


def test_a_shift_is_a_rotation_and_two_shifts_are_their_product():
    first, second = shift_matrix(3, 8), shift_matrix(4, 8)
    np.testing.assert_allclose(first @ first.T, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(first @ second, shift_matrix(7, 8), atol=1e-12)
    assert np.abs(first - second).max() > 0.1


def test_dot_products_depend_on_the_distance_alone():
    numbers = position_numbers(16, length=30, shifts=2)
    products = numbers.table @ numbers.table.T
    for position in range(30):
        np.testing.assert_allclose(products[position, position:], numbers.dots[: 30 - position], atol=1e-10)
    np.testing.assert_allclose(cosines(numbers.table), products / 8, atol=1e-10)


def test_the_learned_table_is_found_and_missed():
    table = np.ones((4, 2))
    params = {"target_positions": {"table": table}, "embedding": {"table": 0 * table}}
    assert learned_table(params).tolist() == table.tolist()
    with pytest.raises(ConfigError, match="no learned positions"):
        learned_table({"embedding": {"table": table}})
    with pytest.raises(ConfigError, match="--workdir: this figure is of a trained run"):
        _ = Subject("configs/quickstart.py", resolve("configs/quickstart.py", [])).trained


@pytest.mark.parametrize("recipe", ["configs/seq2seq.py:bahdanau", "configs/word_vectors.py"])
def test_a_model_without_positions_has_no_picture(recipe, tmp_path):
    with pytest.raises(ConfigError, match="no positional encodings"):
        make(Subject(recipe, resolve(recipe, [])), tmp_path / "positions.png")


@pytest.mark.parametrize(
    ("kind", "message"), [("none", "no positional encodings"), ("learned", "or a run that has learned them")]
)
def test_a_recipe_without_sinusoids_has_none_to_draw(kind, message, tmp_path):
    config = resolve("configs/quickstart.py", [("model.positions", kind)])
    with pytest.raises(ConfigError, match=message):
        make(Subject("configs/quickstart.py", config), tmp_path / "positions.png")
