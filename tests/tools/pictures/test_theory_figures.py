import jax
import numpy as np
import pytest

from transformer_jax.tools.pictures import attention_figures
from transformer_jax.tools.pictures.positions import cosines, position_numbers
from transformer_jax.tools.pictures.training_figures import smoothing_numbers

TOLERANCE = 1e-5


@pytest.mark.parametrize("width", [6, 64])
def test_one_matrix_shifts_every_position_and_dot_products_depend_on_the_distance_alone(width):
    numbers = position_numbers(width, length=80, shifts=40)
    assert len(numbers.closed_form) == len(numbers.fitted) == 40
    assert max(numbers.closed_form.max(), numbers.fitted.max()) < TOLERANCE
    # With few columns the positions of the fit leave no other matrix.
    assert (numbers.held_out.max() < TOLERANCE) == (width == 6)
    products = numbers.table @ numbers.table.T
    for position in range(80):
        np.testing.assert_allclose(products[position, position:], numbers.dots[: 80 - position], atol=1e-10)
    np.testing.assert_allclose(cosines(numbers.table), products / (width / 2), atol=1e-10)


def test_masks_of_padded_and_packed_rows():
    pairs = [([5, 2], [7, 8, 2]), ([6, 6, 2], [9, 2]), ([4, 4, 4, 2], [4, 4, 4, 2])]
    padded, packed = attention_figures.padded_and_packed(pairs)
    for rows, *expected in (
        (padded, "xx.. xx.. .... ....", "x... xx.. xxx. ....", "xx.. xx.. xx.. ...."),
        (packed, "xx... xx... ..xxx ..xxx ..xxx", "x.... xx... xxx.. ...x. ...xx", "xx... xx... xx... ..xxx ..xxx"),
    ):
        masks = attention_figures.row_masks(rows)
        assert [" ".join("".join(".x"[int(cell)] for cell in row) for row in mask) for mask in masks] == expected
    np.testing.assert_array_equal(packed.target.positions, [[0, 1, 2, 0, 1]])


def test_unscaled_scores_vary_by_d_k_and_their_softmax_has_little_gradient():
    numbers = attention_figures.scaling_numbers((4, 64, 1024), queries=500, keys=32)
    np.testing.assert_allclose(numbers.variance[0], numbers.key_sizes, rtol=0.05)
    np.testing.assert_allclose(numbers.variance[1], 1.0, rtol=0.05)
    assert (np.diff(numbers.entropy[0]) < -0.3).all()
    assert numbers.gradient[0, 2] < 0.5 * numbers.gradient[1, 2]
    assert np.ptp(numbers.entropy[1]) < 0.1 and np.ptp(numbers.gradient[1]) < 0.02
    scores = np.array([0.3, -1.0, 2.0, 0.0])
    norm = attention_figures.softmax_jacobian_norm(np.asarray(jax.nn.softmax(scores)))
    assert norm == pytest.approx(np.linalg.norm(jax.jacobian(jax.nn.softmax)(scores)), rel=1e-5)


def test_the_smoothed_target_is_the_probability_with_the_least_loss():
    numbers = smoothing_numbers(0.2, classes=4)
    np.testing.assert_allclose(numbers.target, [0.85, 0.05, 0.05, 0.05], atol=1e-5)
    assert numbers.probability[numbers.loss[0].argmin()] == pytest.approx(0.85, abs=2e-3)
    assert (numbers.gradient[0, numbers.probability > 0.851] > 0).all() and (numbers.gradient[1] < 0).all()
    np.testing.assert_allclose(numbers.loss[1], -np.log(numbers.probability), atol=1e-5)
