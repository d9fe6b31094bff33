"""A disk on which nothing more fits, and a folder that is gone, while a run saves."""

import errno
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from transformer_jax.checkpoints import save_failure
from transformer_jax.checkpoints.disk import DiskFolder
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.checkpoints.reader import CheckpointReader
from transformer_jax.checkpoints.save_failure import SaveFailed, require_free_space
from transformer_jax.config import ConfigError
from transformer_jax.training.state import TrainState


def state_at(step: int) -> TrainState:
    table = jax.random.normal(jax.random.key(step), (256, 128))
    return TrainState(jax.numpy.asarray(step), {"table": table}, {}, jax.random.key_data(jax.random.key(0)))


@contextmanager
def files_of_at_most(size: int):
    """As on a disk that is nearly full: more than ``size`` bytes fit into no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_sentence_and_leaves_no_half_checkpoint(tmp_path, capfd):
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder)
    checkpoints.save(state_at(15), {})
    checkpoints.wait()
    sentence = f"{folder}: the disk is full; newest whole checkpoint: 15. Make room and run the same command"
    with files_of_at_most(10_000), pytest.raises(SaveFailed) as caught:
        checkpoints.save(state_at(20), {})
        checkpoints.wait()
    assert str(caught.value) == sentence
    with files_of_at_most(10_000), suppress(SaveFailed):
        checkpoints.close()
    assert "15" in [entry.name for entry in folder.iterdir()]
    assert capfd.readouterr().err == ""
    restored, _ = CheckpointReader(folder).restore(15, state_at(0))
    np.testing.assert_array_equal(restored.params["table"], state_at(15).params["table"])


def test_of_another_disk_that_is_full_the_file_is_named(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device", "/scratch/blocks")
    assert (
        DiskFolder(tmp_path).problem_of(full).startswith("/scratch/blocks: the disk is full; newest whole checkpoint:")
    )
    own = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "15"))
    assert DiskFolder(tmp_path).problem_of(own).startswith(f"{tmp_path}: the disk is full")


def test_a_run_that_was_moved_away_is_told(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    with pytest.raises(SaveFailed, match="run was removed or moved while training"), DiskFolder(folder).writing():
        raise FileNotFoundError(folder)


def test_a_run_that_was_removed_and_made_again_by_a_save_is_told(tmp_path):
    disk = DiskFolder(tmp_path / "run" / "checkpoints")
    disk.prepare()
    disk.require_present()
    shutil.rmtree(tmp_path / "run")
    disk.path.mkdir(parents=True)
    with pytest.raises(SaveFailed, match="run was removed or moved while training"):
        disk.require_present()


def test_room_is_asked_for_before_the_first_update(tmp_path, monkeypatch):
    state = {"table": jax.ShapeDtypeStruct((1_000_000,), np.dtype("float32"))}
    monkeypatch.setattr(save_failure.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000_000))
    assert require_free_space(tmp_path, state, kept=1) == []
    (warning,) = require_free_space(tmp_path, state, kept=2)
    assert "0.01 GB free; 2 checkpoints and one being written need 0.012 GB" in warning
    monkeypatch.setattr(save_failure.shutil, "disk_usage", lambda path: SimpleNamespace(free=3_000_000))
    with pytest.raises(ConfigError, match="0.003 GB free, and one checkpoint needs 0.004 GB; make room"):
        require_free_space(tmp_path, state, kept=1)


def test_a_command_that_failed_ends_though_a_thread_still_waits():
    code = """
import sys, threading
import transformer_jax.__main__ as program
def main():
    threading.Thread(target=threading.Event().wait).start()
    print("cannot be written")
    return 75
program.main = main
sys.exit(program.program())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (75, "cannot be written\n"), ended.stderr
