"""When a comparison holds, and when it does not."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from tools.interop.small_models import small_model

from transformer_jax.config import DataError
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.interop.fairseq_family import MISSING_LOGIT as NEVER
from transformer_jax.tools.interop.fairseq_family import VocabularyOrder
from transformer_jax.tools.interop.parity import Check, Comparison, Divergence, Tolerance, differences
from transformer_jax.training.losses import label_smoothed_cross_entropy


def test_what_is_no_number_is_infinitely_far_off():
    mine = np.array([1.0, 1.0, 1.0, -np.inf, NEVER, NEVER, 2.0])
    theirs = np.array([np.nan, -np.inf, np.inf, -np.inf, 2 * NEVER, 1.0, 1.5])
    errors = differences(mine, theirs)
    assert errors.tolist() == [np.inf, np.inf, np.inf, np.inf, 1.0 - NEVER, 0.5]
    with pytest.raises(DataError, match="same model and vocabulary"):
        differences(mine, theirs[:3])


def test_an_id_that_is_missing_changes_no_probability_and_hardly_a_smoothed_loss():
    foreign = np.random.default_rng(0).normal(size=(1, 3, 58_000)).astype(np.float32) * 5
    order = VocabularyOrder(np.array([-1, *range(foreign.shape[-1])]))
    losses = [
        label_smoothed_cross_entropy(logits, np.full((1, 3), first), np.ones((1, 3)), smoothing=0.1)
        for logits, first in ((foreign, 1), (order.logits(foreign), 2))
    ]
    np.testing.assert_allclose(losses[0].nll, losses[1].nll, rtol=1e-6)
    np.testing.assert_allclose(losses[0].loss, losses[1].loss, atol=0.01)


def test_each_bound_can_fail():
    checks = (Check("tokenized alike", 9, 9),)
    whole = Comparison("it", True, Tolerance(1e-4, 1e-5), 10, 50, 9, 5e-5, 5e-6, (), checks)
    far, near = (Divergence(1, 2, gap) for gap in (-20.0, -5e-4))
    lenient = Tolerance(1e-4, 1e-5, greedy=0.9)
    assert whole.holds and whole._replace(divergences=(near,)).holds
    assert whole._replace(divergences=(near, far), tolerance=lenient).holds
    for changed in (
        {"divergences": (near, far)},
        {"divergences": (far, far), "tolerance": lenient},
        {"divergences": (Divergence(1, 1, np.nan),)},
        {"largest": 2e-4},
        {"mean": 2e-5},
        {"mean": np.nan},
        {"checks": (Check("tokenized alike", 8, 9),)},
    ):
        assert not whole._replace(**changed).holds, changed


def test_products_are_exact_on_every_device_whatever_the_decoding():
    small = small_model()
    rounded = replace(small.config, decoding=replace(small.config.decoding, compute_dtype="bfloat16"))
    model, ids = replace(small, config=rounded).opened(), Tokens.from_ids(np.ones((1, 4), np.int32))
    program = jax.make_jaxpr(lambda params: model.model.apply({"params": params}, ids, ids, train=False))(model.params)
    assert {*re.findall(r"precision=(.*)", str(program))} == {"(Precision.HIGHEST, Precision.HIGHEST)"}
    assert "bf16" not in str(program)
