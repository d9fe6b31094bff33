"""The arithmetic of the scripts for a GPU that is at hand, and of the roofline of one that is not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.tools.preflight.calibration import Calibration
from transformer_jax.tools.preflight.memory_traffic import KINDS

MEASURED = Calibration("NVIDIA H100 80GB HBM3", 1, {"bfloat16": 500e12, "float32": 300e12}, 2e12, {}, "0.10")


def test_bounds_of_a_step(benchmark_module):
    cost = {"flops": 5e12, "traffic": 40e9, "seconds": 0.04}
    found = benchmark_module("step_bound").bounds(cost, MEASURED, "bfloat16", 1)
    assert (found["memory_seconds"], found["compute_seconds"]) == (0.02, 0.01)
    assert found["share_of_bound"] == 0.5
    assert found["mfu_of_measured"] == pytest.approx(0.25)
    assert found["mfu"] == pytest.approx(125 / 989)


def test_the_least_traffic_of_one_layer_each_by_hand(benchmark_module):
    least = benchmark_module("least_traffic")
    found = least.least_traffic(least.Dimensions(1, 1, 1, d_model=1, d_ff=0, vocabulary=0, parameters=0))
    assert found == {
        # Self-attention 6 (1 + 3) + 6 (1 + 1), to the source 6 (1 + 1) + 6 (1 + 2) + 6 (1 + 1), feed-forward 6 + 6.
        "products of layers": 36 + 36 + 42 + 2 * 12,
        "attention": 3 * 24,
        "norms, residuals, dropout": 5 * 24,
        "casts, biases, activations": 0,
        "logits and loss": 6,
        "embeddings": 40,
        "optimizer": 0,
    }
    weights = least.least_traffic(least.Dimensions(0, 1, 1, d_model=2, d_ff=0, vocabulary=3, parameters=10))
    assert (weights["products of layers"], weights["logits and loss"], weights["optimizer"]) == (8 * 4, 8 * 6, 340)
    assert set(found) <= {kind for kind, _ in KINDS}


def test_two_commits_side_by_side(benchmark_module):
    roofline = benchmark_module("roofline")
    row = {"traffic": 2 * 2**30, "products": 1e12, "memory_seconds": 0.002, "compute_seconds": 0.001, "mfu_bound": 0.5}
    now = row | {"least": {"attention": 2**30}, "kinds": {"attention": 2**31}}
    before = row | {"traffic": 6 * 2**30, "least": {}, "kinds": {"attention": 2**31, "other": 2**32}}
    lines = roofline.table({"base": now}, {"base": before}).splitlines()
    assert "| base | 2.0 | 1.0 | 1.00 | 2.0 | 1.0 | 50% |" in lines
    assert "| base, before | 6.0 | 0.0 | 1.00 | 2.0 | 1.0 | 50% |" in lines
    assert lines[-1] == "| base | 1.00, 2.00, 2.00 |"


def test_masks_of_the_parity(benchmark_module):
    parity = benchmark_module("attention_parity")
    packed = np.asarray(parity.mask_of("packed causal", 8, 2).query_segments)
    assert packed.tolist() == [[1, 1, 2, 2, 3, 3, 4, 4], [1, 1, 2, 2, 3, 3, 0, 0]]
    assert np.asarray(parity.mask_of("padding", 4, 2).query_segments).tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_the_summary_tells_what_there_is(benchmark_module):
    table = benchmark_module("gpu_day_table")
    step = {"rows": 2, "length": 8, "seconds": 0.004, "memory_seconds": 0.002, "compute_seconds": 0.001}
    step |= {"share_of_bound": 0.5, "mfu": None, "mfu_of_measured": 0.25, "losses": [9.0, 8.5]}
    text = table.summary({"base_256": step})
    assert "| base_256 | 16 | 4.00 | 2.00 | 1.00 | 50% | 25% of measured | 9.000, 8.500 |" in text


def test_the_script_is_shell(benchmark_module):
    script = benchmark_module("gpu_day_table").__file__.replace("gpu_day_table.py", "gpu_day.sh")
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


@pytest.mark.slow
def test_every_step_runs_where_there_is_no_gpu(tmp_path):
    script = Path(__file__).parents[2] / "experiments/benchmarks/gpu_day.sh"
    # One device, as on the machine that it is for.
    environment = os.environ | {"GPU_DAY_REHEARSAL": "1", "PYTHON": sys.executable, "XLA_FLAGS": ""}
    done = subprocess.run(["bash", script, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout
