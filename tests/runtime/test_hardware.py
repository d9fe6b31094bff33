"""``compute_dtype=auto``: by the device, once, and kept by the run."""

from typing import NamedTuple

import pytest
from run_settings import tiny_settings

from transformer_jax.config import MeshConfig, from_dict, to_json
from transformer_jax.run_directory.layout import RunDirectory, write_json
from transformer_jax.runs import starting
from transformer_jax.runtime import hardware
from transformer_jax.runtime.hardware import DeviceSettings, resolve_for_device
from transformer_jax.training.sharding import make_mesh

MULTIPLES = {"gpu": 8, "tpu": 16}


class Device(NamedTuple):
    platform: str
    compute_capability: str = ""


@pytest.mark.parametrize(
    ("device", "flags", "has_units"),
    [
        (Device("cpu"), "fpu sse2 avx2 avx512f", False),
        (Device("cpu"), "fpu avx512f avx512_bf16", True),
        (Device("cpu"), "fpu amx_bf16 amx_tile", True),
        (Device("gpu", "7.5"), "avx512_bf16", False),
        (Device("gpu", "8.0"), "", True),
        (Device("gpu", "10.0"), "", True),
        (Device("gpu", "gfx942"), "", True),
        (Device("tpu"), "", True),
    ],
)
def test_who_has_units_for_bfloat16(device, flags, has_units, tmp_path):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t:\n")
    assert hardware.has_bfloat16_units(device, tmp_path / "cpuinfo") is has_units
    if device.platform != "cpu":
        assert hardware.settings_on(device) == ("bfloat16" if has_units else "float32", MULTIPLES[device.platform])


def test_a_run_keeps_what_auto_became_when_it_began(tmp_path, monkeypatch):
    settings, run = tiny_settings(tmp_path), RunDirectory(tmp_path / "run")
    config = from_dict(settings | {"model": settings["model"] | {"compute_dtype": "auto"}})
    mesh = make_mesh(MeshConfig())
    monkeypatch.setattr(starting, "settings_on", lambda device: DeviceSettings("bfloat16", 16))
    began = resolve_for_device(config, lambda: starting._device_settings(run, mesh))
    assert (began.model.compute_dtype, began.batching.width_multiple) == ("bfloat16", 16)
    write_json(run.config, to_json(began))
    # On hardware without units: a new run, then the one that has a checkpoint.
    monkeypatch.setattr(starting, "settings_on", lambda device: DeviceSettings("float32", 4))
    assert starting._device_settings(run, mesh) == ("float32", 4)
    (run.checkpoints / "2").mkdir(parents=True)
    assert starting._device_settings(run, mesh) == ("bfloat16", 16)
