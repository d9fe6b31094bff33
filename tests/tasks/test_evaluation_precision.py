"""Decoding and the loss of a split have one precision, whatever that of training."""

import jax
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import from_dict
from transformer_jax.config.conversion import apply_overrides
from transformer_jax.models.interface import call
from transformer_jax.runtime.hardware import evaluation_dtype
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tasks.translation.objective import EnsembleObjective, TranslationObjective
from transformer_jax.training.sharding import make_mesh

IDS = np.array([[5, 6, 2]], np.int32)
BATCH = Batch(Tokens.from_ids(IDS), Tokens.from_ids(IDS))


def objective(tmp_path, stated):
    settings = {"model.compute_dtype": "bfloat16", "decoding.compute_dtype": stated}
    config = from_dict(apply_overrides(tiny_settings(tmp_path), settings.items()))
    return TranslationObjective(config, 12, 12, make_mesh(config.mesh, jax.devices()[:1]))


def has_bfloat16(function, *arguments):
    return "bf16" in str(jax.make_jaxpr(function)(*arguments))


@pytest.mark.parametrize("stated", ["model", "float32", "bfloat16"])
def test_one_precision_for_all_of_evaluation(tmp_path, stated):
    single = objective(tmp_path, stated)
    params = jax.eval_shape(single.init_params, jax.random.key(0))
    together = EnsembleObjective([single, single])
    # On a CPU bfloat16 would be slower.
    is_rounded = stated == "bfloat16"
    assert has_bfloat16(single.unsmoothed_loss, params, BATCH) is is_rounded
    assert (
        has_bfloat16(lambda params: call(single.model, params, "encode", BATCH[0], train=False), params) is is_rounded
    )
    members = {f"members_{number}": params for number in range(2)}
    assert has_bfloat16(together.unsmoothed_loss, members, BATCH) is is_rounded
    assert single.evaluation_dtype == together.evaluation_dtype == ("bfloat16" if is_rounded else "float32")


def test_other_devices_keep_the_precision_of_the_model():
    class Device:
        platform = "gpu"

    assert evaluation_dtype("model", "bfloat16", Device()) == "bfloat16"
    assert evaluation_dtype("float32", "bfloat16", Device()) == "float32"
