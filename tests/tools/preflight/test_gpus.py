"""GPUs to compile for: their facts and the names of their machines."""

import importlib.util
import json

import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight.chips import CHIPS
from transformer_jax.tools.preflight.gpus import SPECS, fact_of, hosts_and_gpus, missing_wheels_named, spec_of

HAS_COMPILER = all(importlib.util.find_spec(name) for name in ("jax_cuda13_plugin", "nvidia"))


def test_hosts_times_gpus():
    assert hosts_and_gpus("h100", "8") == (1, 8)
    assert hosts_and_gpus("h100", "16x4") == (16, 4)
    with pytest.raises(ConfigError, match="h100:16 has 16 GPUs a host, and hosts have at most 8; h100:2x8 is"):
        hosts_and_gpus("h100", "16")
    with pytest.raises(ConfigError, match=r"a100:2x2x8 is not a100:GPUS or a100:HOSTSxGPUS"):
        hosts_and_gpus("a100", "2x2x8")


@pytest.mark.parametrize("kind", SPECS)
def test_every_fact_that_is_another_is_in_the_file(kind):
    fields = {line.partition(":")[0] for line in spec_of(kind).splitlines()}
    assert set(SPECS[kind].changes) <= fields
    for field, value in SPECS[kind].changes.items():
        assert f"\n{field}: {value}\n" in spec_of(kind)
    assert "CUDA NVIDIA" in spec_of(kind)


def test_what_a_gpu_can_do():
    assert fact_of("h200", "core_count") == fact_of("h100", "core_count") == 132
    assert CHIPS["h200"].memory_bandwidth == 4.8e12
    # Of 80 GB the compiler takes 80 %.
    assert CHIPS["h100"].memory == pytest.approx(63.3 * 2**30, rel=0.01)
    assert CHIPS["h100"].peak("bfloat16") == 2 * CHIPS["h100"].peak("float32")
    assert CHIPS["v5e"].peak("bfloat16") == CHIPS["v5e"].peak("float32")


@pytest.mark.parametrize("message", ["INTERNAL: No PTX compilation provider is available.\nmore", "cuDNN not found."])
def test_a_missing_wheel_is_named(message):
    with pytest.raises(ConfigError, match="nvidia-cuda-nvcc"), missing_wheels_named():
        raise RuntimeError(message)


def test_another_error_stays_what_it_is():
    with pytest.raises(RuntimeError, match="out of memory"), missing_wheels_named():
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")


@pytest.mark.skipif(HAS_COMPILER, reason="they can be compiled for here")
def test_without_the_plugin_it_is_named(capsys):
    assert main(["preflight", "--config=configs/quickstart.py", "--topology=h100:8"]) == 2
    assert "needs pip install jax-cuda13-plugin==" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="needs pip install transformer_jax[preflight-gpu]")
def test_for_gpus_that_are_not_here(capsys):
    command = "preflight --config=configs/quickstart.py --topology=h100:2x2 --config.batching.row_multiple=8 --json"
    assert main(command.split()) == 0
    program = json.loads(capsys.readouterr().out)
    assert program["fits"]
    assert program["traffic"] > 0
    assert set(program["sent"]) == {"NVLink", "network"}
    assert min(program["sent"].values()) > 0
