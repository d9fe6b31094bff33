"""An accelerator is not looked for where there is none, whatever is installed."""

import os

import pytest

from transformer_jax.runtime import platforms


@pytest.mark.parametrize(
    ("files", "is_installed", "chosen"),
    [((), True, "cpu"), ((), False, None), (("accel0",), True, None), (("nvidia0",), True, None)],
)
def test_only_a_plugin_without_devices_is_kept_quiet(monkeypatch, tmp_path, files, is_installed, chosen):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr(platforms, "find_spec", lambda name: object() if is_installed else None)
    platforms.skip_missing_accelerators(tmp_path)
    assert os.environ.get("JAX_PLATFORMS") == chosen
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    platforms.skip_missing_accelerators(tmp_path)
    assert os.environ["JAX_PLATFORMS"] == "tpu"
