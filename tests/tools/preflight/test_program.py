"""Programs that are compiled and not run: what they cost, and whether they fit."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.preflight.small_settings import SETTINGS
from tools.word_vectors.word_vectors_settings import word_vectors_config

from transformer_jax.config import from_dict, hyperparameters_of
from transformer_jax.kit.soap import SoapSettings, soap
from transformer_jax.tools.preflight.chips import CHIPS, Topology
from transformer_jax.tools.preflight.compiled_program import batch_size, compile_program, product_flops, roofline
from transformer_jax.tools.preflight.preflight_report import model_flops_utilization, report

CONFIG = from_dict(SETTINGS)
SMALL = Topology("v5e:2x4", jax.devices()[:8], CHIPS["v5e"]._replace(memory=1000))


@pytest.fixture(scope="module")
def program():
    """The step of ``CONFIG`` on eight devices, which have too little memory."""
    return compile_program(CONFIG, SMALL)


def test_products_are_counted_in_loops_branches_and_functions_with_own_gradients():
    left, right = jnp.ones((3, 4)), jnp.ones((4, 5))
    once = 2 * 3 * 4 * 5
    assert product_flops(jnp.matmul, left, right) == once
    assert product_flops(jax.jit(jnp.matmul), left, right) == once
    assert product_flops(lambda a, b: jax.lax.map(lambda _: a @ b, jnp.arange(7)), left, right) == 7 * once
    branches = lambda a, b: jax.lax.cond(a[0, 0] > 0, jnp.matmul, lambda a, b: a @ b @ b.T @ b, a, b)  # noqa: E731
    assert product_flops(branches, left, right) > once
    assert product_flops(jax.grad(lambda a, b: jnp.sum((a @ b) ** 2)), left, right) == 2 * once
    mesh = jax.make_mesh((3,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:3])
    split = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=(jax.P("rows"), jax.P()), out_specs=jax.P("rows"))
    assert product_flops(split, left, right) == once


def test_products_of_groups_and_convolutions_are_counted():
    rows, kernels, sizes = jnp.ones((12, 4)), jnp.ones((3, 4, 5)), jnp.asarray([3, 4, 5])
    once = 2 * 12 * 4 * 5
    forward = lambda rows, kernels: jnp.sum(jax.lax.ragged_dot(rows, kernels, sizes) ** 2)  # noqa: E731
    assert product_flops(forward, rows, kernels) == once
    assert product_flops(jax.grad(forward, argnums=(0, 1)), rows, kernels) == 3 * once
    images, filters = jnp.ones((2, 6, 8, 8)), jnp.ones((10, 3, 3, 3))
    convolve = partial(jax.lax.conv_general_dilated, window_strides=(1, 1), padding="VALID", feature_group_count=2)
    assert product_flops(convolve, images, filters) == 2 * (2 * 10 * 6 * 6) * (3 * 3 * 3)
    scaled = partial(jax.lax.scaled_dot, preferred_element_type=jnp.float32)
    with pytest.warns(UserWarning, match="scaled_dot are not counted"):
        assert product_flops(scaled, jnp.ones((2, 4)), jnp.ones((4, 5))) == 0


def test_soap_turns_its_bases_once_in_some_updates():
    def flops(every):
        (rule,) = soap(SoapSettings(precondition_every=every), hyperparameters_of(CONFIG))
        params = {"kernel": jnp.ones((4, 8))}
        return product_flops(rule.update, params, rule.init(params))

    # A turn multiplies the covariance of each side with its basis.
    assert flops(1) - flops(10) == pytest.approx(0.9 * 2 * (4**3 + 8**3), abs=1)


def test_the_step_of_a_recipe_on_pretended_devices(program):
    assert (program.rows, program.width) == (16, 16) and batch_size(CONFIG, 30) == (8, 30)
    assert program.parameter_bytes == 4 * program.parameters
    # Adam's two moments and its counters.
    assert program.state_bytes == pytest.approx(2 * program.parameter_bytes, rel=0.01)
    assert {collective.kind for collective in program.collectives} == {"all-reduce"}
    topology, program = Topology("cpu:8", jax.devices()[:8], None), program._replace(fits=True, available=math.inf)
    assert "no roofline" in report(program, topology, CONFIG)


def test_operations_of_a_transformer_against_the_formula(program):
    positions, width, d_model, d_ff, vocabulary = 16 * 16, 16, 16, 32, 64
    projections, feed_forward, scores = 4 * d_model * d_model, 2 * d_model * d_ff, 2 * width * d_model
    forward = 3 * (projections + scores) + 2 * feed_forward + d_model * vocabulary
    # The backward pass has two products for each of the forward pass.
    assert program.model_flops == pytest.approx(3 * 2 * positions * forward, rel=0.01)


def test_a_program_that_needs_too_much_memory(program):
    assert not program.fits and len(program.largest) == 3
    assert program.largest[0].bytes >= program.largest[1].bytes > 0
    text = report(program, SMALL, CONFIG)
    assert "DOES NOT FIT" in text and "--config.model.rematerialize" in text and program.largest[0].name in text
    assert "the compiler refused without naming them" in report(program._replace(largest=[]), SMALL, CONFIG)


def test_a_step_takes_as_long_as_its_scarcest_resource(program):
    traffic, sent = {"attention": int(0.5 * 819e9)}, {"x": 20e9, "y": 40e9}
    program = program._replace(fits=True, model_flops=8 * int(150e12), flops=2e14, traffic_kinds=traffic, sent=sent)
    limits = roofline(program, CHIPS["v5e"])
    np.testing.assert_allclose(limits, (200 / 197, 0.5, 0.4))
    assert (limits.bound, limits.seconds) == ("compute", 200 / 197)
    # A quarter of the operations is recomputation.
    assert model_flops_utilization(program, CHIPS["v5e"]) == pytest.approx(0.75)
    assert "MFU 75%" in report(program, SMALL, CONFIG)
    unmeasured = SMALL._replace(chip=SMALL.chip._replace(links={}))
    assert "interconnect unknown\n" in report(program, unmeasured, CONFIG)


def test_the_products_of_word_vectors_are_those_of_rows_and_their_words(tmp_path):
    topology, config = Topology("cpu:1", jax.devices()[:1], None), word_vectors_config(tmp_path)
    program = compile_program(config, topology)
    # The vocabulary of the settings, of 10,000 words, fills up to a multiple of 64.
    assert (program.rows, program.width, program.parameters) == (32, 8, 2 * 10_048 * 8)
    # Scores and the two gradients; of a row of 8 words with 2 more on each side, and 4 negatives.
    assert program.model_flops == 3 * 2 * 32 * 8 * (8 + 2 * 2 + 4) * 8
    assert program.traffic_kinds["rows of the tables"] > 0
