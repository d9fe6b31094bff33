"""Set-up of a process: freed memory is kept, and an accelerator that is not there is not looked
for."""

import os
import subprocess
import sys

import pytest
from process_environment import process_environment

from transformer_jax import __main__
from transformer_jax.runtime import startup

# Allocates and frees 64 MB, ten times; each fresh page is a fault.
PAGE_FAULTS = """
import ctypes, resource, sys
from transformer_jax.runtime.startup import keep_freed_memory
keeps = keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(10):
    block = libc.malloc(ctypes.c_size_t(2**26))
    ctypes.memset(block, 1, 2**26)
    libc.free(block)
print(keeps, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_freed_memory_is_used_again_instead_of_fetched_anew():
    environment = process_environment(JAX_PLATFORMS="cpu")
    said = subprocess.check_output([sys.executable, "-c", PAGE_FAULTS], env=environment, text=True).split()
    assert said[0] == "True" and int(said[1]) < 5 * 2**26 // 4096, "fetched once, not ten times"


def test_nothing_is_changed_where_a_gpu_is_found_or_the_user_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(startup, "DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert not startup.keep_freed_memory()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("TRANSFORMER_JAX_MALLOC", "default")
    assert not startup.keep_freed_memory()


@pytest.mark.parametrize(
    ("files", "is_installed", "chosen"),
    [((), True, "cpu"), ((), False, None), (("accel0",), True, None), (("nvidia0",), True, None)],
)
def test_only_a_plugin_without_devices_is_kept_quiet(monkeypatch, tmp_path, files, is_installed, chosen):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr(startup, "find_spec", lambda name: object() if is_installed else None)
    startup.skip_missing_accelerators(tmp_path)
    assert os.environ.get("JAX_PLATFORMS") == chosen
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    startup.skip_missing_accelerators(tmp_path)
    assert os.environ["JAX_PLATFORMS"] == "tpu"


def test_a_platform_without_devices_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(__main__, "run_command", lambda arguments: exec(compile(*arguments, "exec")))
    unknown = "Unable to initialize backend nope"
    for code, message in ((f"raise RuntimeError({unknown!r})", unknown), ("assert False", "no device of cuda here")):
        assert __main__.main([code, "jax/_src/xla_bridge.py"]) == 2
        assert capsys.readouterr().err.startswith(f"transformer-jax: JAX_PLATFORMS: {message}")
    monkeypatch.setattr(__main__, "run_command", lambda arguments: exec("assert False"))
    with pytest.raises(AssertionError):  # Not of JAX.
        __main__.main([])
