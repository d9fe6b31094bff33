"""What the benchmarks count, and the other side of the training benchmark. Nothing is timed
here."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from transformer_jax.config import TransformerConfig
from transformer_jax.models.build import build_model
from transformer_jax.models.interface import init_params
from transformer_jax.sequence_types import Batch, Tokens
from transformer_jax.tools.preflight.compiled_program import product_flops


def test_the_formula_counts_every_product_of_the_model(script):
    workload = script("workload", "benchmarks", "roofline")
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 8, "d_ff": 12, "num_heads": 2}
    config = TransformerConfig(**sizes, dropout=0.0, embedding_dropout=0.0)
    model = build_model(config, 17, 17)
    batch = Batch(*(Tokens.from_ids(np.full((3, width), 4, np.int32)) for width in (5, 7)))
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    forward = product_flops(lambda params: model.apply({"params": params}, *batch, train=False), params)
    assert workload.useful_flops(batch, config, 17) == workload.padded_flops(batch, config, 17) == 3 * forward
    # Padding is not useful.
    ids = np.array([[4, 2, 0, 0], [4, 5, 6, 2]], np.int32)
    batch = Batch(Tokens.from_ids(ids), Tokens.from_ids(ids))
    alone = [Batch(*(Tokens.from_ids(row[None, row > 0]) for _ in "st")) for row in ids]
    assert workload.useful_flops(batch, config, 17) == sum(workload.padded_flops(one, config, 17) for one in alone)
    assert workload.target_tokens(batch) == 6


@pytest.mark.slow
def test_every_step_runs_where_there_is_no_gpu(tmp_path):
    script = Path(__file__).parents[2] / "experiments/benchmarks/gpu_day.sh"
    # One device, as on the machine that it is for.
    environment = os.environ | {"GPU_DAY_REHEARSAL": "1", "PYTHON": sys.executable, "XLA_FLAGS": ""}
    done = subprocess.run(["bash", script, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout
