"""Leases: one holder, taken over when it no longer changes; and what asks for one."""

import errno
import fcntl
import signal
import threading
import time

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.runs.run_directory import RunDirectory, RunIsBusy
from transformer_jax.runtime import lease
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.lease import _LocalFile, held, leased

SECONDS = 0.6
BUSY = ConfigError("busy")


def test_one_process_holds_it_and_it_is_free_afterwards(tmp_path):
    for _ in range(2):
        with leased(tmp_path / "lease", BUSY, SECONDS):
            with pytest.raises(ConfigError, match="busy"), leased(tmp_path / "lease", BUSY, SECONDS):
                pass
            assert (tmp_path / "lease").is_file()
        assert not list(tmp_path.iterdir())


def test_that_of_a_dead_process_is_taken_over_by_one_of_two(tmp_path):
    (tmp_path / "lease").write_text('["0123", 7]')
    outcomes = []

    def take() -> None:
        try:
            with leased(tmp_path / "lease", BUSY, SECONDS):
                outcomes.append("held")
                time.sleep(2 * SECONDS)
        except ConfigError:
            outcomes.append("busy")

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["busy", "held"]


def test_that_of_a_killed_process_on_this_machine_is_taken_without_watching_and_it_loses_it(tmp_path):
    ended = []
    with held(_LocalFile(tmp_path / "lease"), "mirror boot", BUSY, 60.0, 30.0, ended.append) as first:
        began = time.monotonic()
        with held(_LocalFile(tmp_path / "lease"), "mirror boot", BUSY, 60.0, 30.0, ended.append) as second:
            assert time.monotonic() - began < 5.0
            assert second.is_held() and not first.is_held()
    assert not (tmp_path / "lease").exists()


def test_that_of_a_copy_of_the_disk_on_another_machine_is_watched(tmp_path):
    with (
        held(_LocalFile(tmp_path / "lease"), "mirror boot-1", BUSY, SECONDS, SECONDS),
        pytest.raises(ConfigError, match="busy"),
        held(_LocalFile(tmp_path / "lease"), "mirror boot-2", BUSY, SECONDS, SECONDS),
    ):
        pass


def test_one_that_was_deleted_is_lost_since_another_may_have_held_it(tmp_path):
    ended = []
    with held(_LocalFile(tmp_path / "lease"), "", BUSY, SECONDS, SECONDS, ended.append) as lease:
        (tmp_path / "lease").unlink()
        assert not lease.is_held()
        time.sleep(SECONDS / 2)
    assert ended == [f"{tmp_path / 'lease'}: another process took the lease, or it was deleted"]


def test_a_process_that_lost_it_is_asked_to_stop(tmp_path):
    asked = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        with leased(tmp_path / "lease", BUSY, SECONDS):
            (tmp_path / "lease").write_text('["another", 0]')
            time.sleep(SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked == [signal.SIGTERM]
    assert (tmp_path / "lease").is_file(), "it is the other's"


def test_where_nothing_can_be_locked_a_run_takes_a_lease(tmp_path, monkeypatch):
    def cannot(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    with RunDirectory(tmp_path).locked():
        with pytest.raises(RunIsBusy, match="another process is training"), RunDirectory(tmp_path).locked():
            pass
        assert not (tmp_path / "train.lease").exists()
    monkeypatch.setattr(fcntl, "flock", cannot)
    with RunDirectory(tmp_path).locked():
        assert (tmp_path / "train.lease").is_file()
    assert not (tmp_path / "train.lease").exists()


@pytest.mark.parametrize(("failures", "ends"), [(1, []), (1000, [signal.SIGTERM])])
def test_a_full_disk_for_a_moment_is_overcome_and_for_longer_ends_the_run_in_time(
    tmp_path, monkeypatch, failures, ends
):
    asked, written, fails = [], [], iter(range(failures))

    def full(path, content):
        if next(fails, None) is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, content)
        written.append(content)

    monkeypatch.setattr(lease, "write_whole", full)
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(time.monotonic()))
    try:
        began = time.monotonic()
        with leased(tmp_path / "lease", BUSY, SECONDS):
            time.sleep(SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(asked) == len(ends)
    assert all(moment - began < SECONDS for moment in asked), "no other can have taken it"
    assert bool(written) != bool(ends)
