"""Devices to compile for: their names, and the facts of GPUs."""

import importlib.util
import re

import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.tools.preflight import chips
from transformer_jax.tools.preflight.chips import open_topology

HAS_COMPILER = all(importlib.util.find_spec(name) for name in ("jax_cuda13_plugin", "nvidia"))


def test_a_missing_wheel_is_named_and_another_error_is_kept():
    with pytest.raises(ConfigError, match="first pip install"), chips.naming_missing_wheels():
        raise RuntimeError("INTERNAL: No PTX compilation provider is available.\nmore")
    with pytest.raises(RuntimeError, match="out of memory"), chips.naming_missing_wheels():
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")


def test_topologies_by_name_and_wrong_ones():
    assert (chips.hosts_and_gpus("h100", "8"), chips.hosts_and_gpus("h100", "16x4")) == ((1, 8), (16, 4))
    for names, message in (
        ("v5e v5e:4xx l4:8 cpu:0 0xv5e:2x2 2v5e:2x2", "is not KIND:SIZE"),
        ("h100:2x2x8 h100:0x8 h100:16", "is not h100:GPUS or h100:HOSTSxGPUS with at most 8"),
        ("cpu:1000", "JAX already runs with 8 devices"),
        ("2xh100:8 2xv4:2x2x1", "only v5e, v5p and v6e have several slices"),
    ):
        for name in names.split():
            with pytest.raises(ConfigError, match=message):
                open_topology(name)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="needs pip install transformer_jax[preflight-gpu]")
def test_for_gpus_that_are_not_here(capsys):
    command = "preflight --config=configs/quickstart.py --topology=h100:2x2 --config.batching.row_multiple=8"
    assert main(command.split()) == 0
    text = capsys.readouterr().out
    sent = re.search(r"axis of the interconnect: NVLink ([\d.,]+), network ([\d.,]+)", text)
    assert min(float(amount.replace(",", "")) for amount in sent.groups()) > 0
    assert float(re.search(r"memory traffic ([\d.]+) GiB", text)[1]) > 0
