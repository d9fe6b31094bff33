"""The local copy in which a run of an object store trains: when it stays, gives way, or is kept aside."""

import shutil
import threading
from pathlib import Path

import pytest
from faulty_store import Killed
from stored_runs import AT_END, LEASE_SECONDS, RUN, elsewhere, save, steps, training

from transformer_jax.checkpoints.format import set_aside
from transformer_jax.config import ConfigError
from transformer_jax.runs import uploads
from transformer_jax.runs.training_mirror import training_mirror
from transformer_jax.runtime.object_stores import MIRRORS, Store


def test_a_run_of_an_earlier_version_is_not_begun_anew(store):
    Store(RUN).write("checkpoints/5/params/a", b"1")
    with pytest.raises(ConfigError, match="checkpoints/5 has no digests"), training():
        pass


def test_a_mirror_that_is_behind_gives_way_to_the_store(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    here = tmp_path / "mirrors"
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        save(folder, 2)
    monkeypatch.setenv(MIRRORS, str(here))
    with training() as folder:
        assert steps(folder) == [1, 2]


def cut_off(monkeypatch) -> None:
    """From now on nothing is uploaded."""
    monkeypatch.setattr(uploads.Uploads, "send", lambda self, is_last=False: False)


def resume_on_another_machine(monkeypatch, folder: Path) -> None:
    """Resumes the run with an empty disk, and comes back to the mirrors in ``folder``."""
    elsewhere(monkeypatch, folder / "other")
    with training():
        pass
    elsewhere(monkeypatch, folder / "mirrors")


def killed_before_an_upload(monkeypatch, step: int):
    """A start that trained up to ``step``, and was killed before it uploaded anything."""
    with monkeypatch.context() as patched:
        cut_off(patched)
        with pytest.raises(Killed), training() as folder:
            save(folder, step)
            raise Killed


def test_work_that_was_not_uploaded_is_kept_where_another_machine_went_on(store, monkeypatch, tmp_path, capsys):
    with training() as folder:
        save(folder, 1)
    killed_before_an_upload(monkeypatch, 3)
    elsewhere(monkeypatch, tmp_path / "other")
    with training() as folder:
        save(folder, 2)
    elsewhere(monkeypatch, tmp_path / "mirrors")
    with training() as folder:
        assert steps(folder) == [1, 2]
    (kept,) = folder.parent.glob("run-*")
    assert steps(kept) == [1, 3]
    assert f"not uploaded from here (checkpoints up to 3) is kept in {kept}" in capsys.readouterr().err


def test_a_start_that_uploads_nothing_takes_nothing_from_the_one_before(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    killed_before_an_upload(monkeypatch, 2)
    elsewhere(monkeypatch, tmp_path / "other")
    with monkeypatch.context() as patched:
        cut_off(patched)
        with training():
            pass
    elsewhere(monkeypatch, tmp_path / "mirrors")
    with training() as folder:
        assert steps(folder) == [1, 2]


def assert_gives_way(monkeypatch, clone: Path) -> None:
    elsewhere(monkeypatch, clone)
    with training() as folder:
        assert steps(folder) == [1, 2]
    assert "checkpoints/2/digests.json" in Store(RUN).listing()


def test_a_copy_of_the_disk_on_another_machine_gives_way_to_what_was_uploaded_since(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    shutil.copytree(tmp_path / "mirrors", tmp_path / "clone")
    with training() as folder:
        save(folder, 2)
    assert_gives_way(monkeypatch, tmp_path / "clone")


def test_a_copy_of_the_disk_that_was_made_while_it_trained_gives_way_too(store, monkeypatch, tmp_path):
    with training(pause=0.01) as folder:
        save(folder, 1)
        while "checkpoints/1/digests.json" not in Store(RUN).listing():
            threading.Event().wait(0.01)
        shutil.copytree(
            tmp_path / "mirrors", tmp_path / "clone", ignore=shutil.ignore_patterns("outgoing", "*.partial")
        )
        save(folder, 2)
    assert_gives_way(monkeypatch, tmp_path / "clone")


def test_a_folder_of_other_runs_is_not_trained_in(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    before = Store("faulty://bucket").listing()
    with (
        pytest.raises(ConfigError, match="faulty://bucket holds other runs, run among them"),
        training_mirror("faulty://bucket", AT_END, LEASE_SECONDS),
    ):
        pass
    assert Store("faulty://bucket").listing() == before


def test_of_a_checkpoint_that_was_damaged_here_the_sound_one_stays_and_comes_back(store):
    with training() as folder:
        save(folder, 1)
        save(folder, 2)
    with training() as folder:
        set_aside(folder / "checkpoints" / "2")
    assert "checkpoints/2/digests.json" in Store(RUN).listing()
    with training() as folder:
        assert steps(folder) == [1, 2]


def test_results_that_were_not_uploaded_are_kept_where_another_machine_wrote_since(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    with monkeypatch.context() as patched, training() as folder:
        cut_off(patched)
        (folder / "evaluation-test-1.json").write_text("{}")
        (folder / "metrics.jsonl").write_text("another end")
    resume_on_another_machine(monkeypatch, tmp_path)
    with training() as folder:
        (kept,) = folder.parent.glob("run-*")
        assert (kept / "evaluation-test-1.json").is_file()
    with training() as folder:
        (folder / "metrics.jsonl").write_text("a third")
    resume_on_another_machine(monkeypatch, tmp_path)
    with training() as folder:
        assert len(list(folder.parent.glob("run-*"))) == 1, "the end of a log is no result"


def test_what_lies_below_a_run_is_left_alone(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
    others = [
        f"{RUN}/torch/checkpoints/100/weights",
        f"{RUN}/marian/config.json",
        f"{RUN}/fine/checkpoints/1/digests.json",
    ]
    for name in others:
        Store(name.rpartition("/")[0]).write(name.rpartition("/")[2], b"{}")
    elsewhere(monkeypatch, tmp_path / "other")
    for step in (2, 3):
        with training() as folder:
            assert not (folder / "marian").exists()
            save(folder, step)
            shutil.rmtree(folder / "checkpoints" / str(step - 1))
    assert {name.removeprefix(f"{RUN}/") for name in others} <= set(Store(RUN).listing())
    assert steps_in_store() == {3}


def steps_in_store() -> set[int]:
    return {int(name.split("/")[1]) for name in Store(RUN).listing() if name.startswith("checkpoints/")}


def test_a_run_two_levels_down_is_one_too(store):
    Store("faulty://bucket/project/run").write("config.json", b"{}")
    with (
        pytest.raises(ConfigError, match="holds other runs, project/run among them"),
        training_mirror("faulty://bucket", AT_END, LEASE_SECONDS),
    ):
        pass


def test_while_a_damaged_run_makes_up_for_its_checkpoint_the_store_keeps_the_longer_log(store):
    with training() as folder:
        save(folder, 1)
        save(folder, 2)
    whole = Store(RUN).read("metrics.jsonl")
    with training() as folder:
        set_aside(folder / "checkpoints" / "2")
        (folder / "metrics.jsonl").write_text(whole.decode().splitlines()[0] + "\n")
        (folder / "outcome.json").write_text("{}")
    assert Store(RUN).read("metrics.jsonl") == whole
    assert Store(RUN).read("outcome.json") == b"{}", "only the log waits"
    with training() as folder:
        set_aside(folder / "checkpoints" / "2")
        save(folder, 3)
        longer = (folder / "metrics.jsonl").read_bytes()
    assert Store(RUN).read("metrics.jsonl") == longer


@pytest.mark.parametrize("record", ["", None])
def test_without_the_record_of_what_was_sent_neither_of_two_results_replaces_the_other(store, record):
    with training() as folder:
        save(folder, 1)
        for name in ("test", "validation"):
            (folder / f"evaluation-{name}-1.json").write_text("first")
    Store(RUN).write("evaluation-test-1.json", b"second")
    sent = folder.parent / "sent.json"
    sent.unlink() if record is None else sent.write_text(record)
    with training():
        pass
    stored = {name: Store(RUN).read(name) for name in Store(RUN).listing() if name.startswith("evaluation-")}
    assert stored.pop("evaluation-test-1.json") == b"second"
    assert stored.pop("evaluation-validation-1.json") == b"first"
    assert list(stored.values()) == [b"first"]


def test_a_folder_that_only_looks_like_a_damaged_checkpoint_is_none(store):
    with training() as folder:
        save(folder, 1)
        (folder / "damaged-2.bak").mkdir()
    assert "checkpoints/1/digests.json" in Store(RUN).listing()


def test_pictures_of_training_are_no_reason_to_keep_a_copy(store, monkeypatch, tmp_path):
    with training() as folder:
        save(folder, 1)
        (folder / "curves.png").write_text("a")
    with monkeypatch.context() as patched, training() as folder:
        cut_off(patched)
        (folder / "curves.png").write_text("another")
    resume_on_another_machine(monkeypatch, tmp_path)
    with training() as folder:
        assert not list(folder.parent.glob("run-*"))


def test_what_a_later_start_removes_here_is_removed_there(store):
    with training() as folder:
        save(folder, 1)
        (folder / "outcome.json").write_text("{}")
    with training() as folder:
        (folder / "outcome.json").unlink()
    assert "outcome.json" not in Store(RUN).listing()
