"""The scripts are run, with a stand-in for gcloud that notes what it was asked and runs commands for hosts here."""

import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from launching.workloads import AWKWARD, sweep, training

from transformer_jax.config import ConfigError
from transformer_jax.launching.tpu_vm import TpuVmSettings, gcloud_script
from transformer_jax.launching.workload import STORAGE_VARIABLE

# One line a call, words apart by tabs; what --command= says is run, as a host would.
GCLOUD = r"""
(IFS=$'\t'; echo "${*//$'\n'/ }") >> "$NOTES/gcloud"
for word in "$@"; do if [[ $word == --command=* ]]; then cd "$NOTES" && bash -c "${word#--command=}"; fi; done
"""
WHERE = ["--zone=us-west4-a", "--project=lab"]


def settings(**changes: object) -> TpuVmSettings:
    defaults = {"name": "base", "tpu": "v5e:4x4", "zone": "us-west4-a", "project": "lab", "runtime_version": None}
    return TpuVmSettings(**(defaults | {"spot": False, "queued": False, "setup": None} | changes))


def test_the_address_of_a_study_is_not_forgotten():
    workers = replace(sweep(workdir="/mnt/sweep", storage=""), storage_is_in_environment=True)
    with pytest.raises(ConfigError, match=f"{STORAGE_VARIABLE}: a TPU VM does not have the environment"):
        gcloud_script(settings(tpu="v5e:1x1"), workers)
    exported = f"export {STORAGE_VARIABLE}=$(cat ~/storage)"
    assert STORAGE_VARIABLE in gcloud_script(settings(tpu="v5e:1x1", setup=exported), workers)


@pytest.fixture
def called(program, notes, tmp_path):
    """Runs a part of a script; the calls of gcloud that it made, as lists of words."""
    program("gcloud", GCLOUD)

    def call(script: str, part: str, behavior: str = "") -> list[list[str]]:
        file = tmp_path / "base.sh"
        file.write_text(script)
        subprocess.run(["bash", "-n", file], check=True)
        (notes / "gcloud").unlink(missing_ok=True)
        subprocess.run(["bash", file, part], check=True, env={**os.environ, "BEHAVIOR": behavior}, timeout=20)
        return [line.split("\t") for line in (notes / "gcloud").read_text().splitlines()]

    return call


def eventually(is_so) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_host_gets_the_same_command_which_outlives_the_connection(called, notes):
    script = gcloud_script(settings(setup="export A='b c'"), training(f"--config.data.directory={AWKWARD}"))
    [words] = called(script, "start", "forever")
    assert words[:7] == ["compute", "tpus", "tpu-vm", "ssh", "base", *WHERE]
    assert words[7] == "--worker=all"
    eventually((notes / "ready-0").exists)
    assert (notes / "arguments-0").read_text().splitlines() == [
        *[
            "train",
            "--distributed",
            "--config=a.py",
            "--workdir=/shared/runs/base",
            f"--config.data.directory={AWKWARD}",
        ]
    ]
    assert "A=b c" in (notes / "environment-0").read_text().splitlines()
    # The program itself, not a shell around it, is what `stop` will find; the end of a connection means nothing to it.
    started = int((notes / "pids").read_text())
    assert int((notes / "base.pid").read_text()) == started
    os.kill(started, signal.SIGHUP)
    called(script, "stop")
    eventually((notes / "saved").exists)


def test_machines_are_made_and_given_back(called):
    script = gcloud_script(settings(), training())
    tpus = ["compute", "tpus", "tpu-vm"]
    made = [*tpus, "create", "base", *WHERE, "--accelerator-type=v5litepod-16", "--version=v2-alpha-tpuv5-lite"]
    assert called(script, "create") == [made]
    assert called(script, "delete") == [[*tpus, "delete", "base", *WHERE]]


def test_machines_are_asked_for_in_the_queue(called):
    script = gcloud_script(settings(tpu="v5p:2x2x4", queued=True, spot=True, runtime_version="own"), training())
    queue = ["compute", "tpus", "queued-resources"]
    [made] = called(script, "create")
    assert made[:5] == [*queue, "create", "base"]
    assert {"--node-id=base", "--accelerator-type=v5p-32", "--runtime-version=own", "--spot"} <= set(made)
    assert called(script, "state") == [[*queue, "describe", "base", *WHERE, "--format=value(state.state)"]]
    assert called(script, "delete") == [[*queue, "delete", "base", *WHERE, "--force"]]


def test_each_worker_of_a_sweep_has_a_machine(called, notes):
    script = gcloud_script(settings(tpu="v6e:2x4"), sweep(3))
    assert [words[4] for words in called(script, "create")] == ["base-0", "base-1", "base-2"]
    assert [words[4] for words in called(script, "start")] == ["base-0", "base-1", "base-2"]
    eventually((notes / "arguments-0").exists)
    with pytest.raises(ConfigError, match="--tpu=v5e:4x4: each worker of a sweep has one host, and this is 4"):
        gcloud_script(settings(), sweep())


def test_alone_it_says_what_it_can_do(program, tmp_path):
    file = tmp_path / "base.sh"
    file.write_text(gcloud_script(settings(), training()))
    result = subprocess.run(["bash", file], capture_output=True, text=True)
    assert result.returncode == 2
    assert "bash FILE create" in result.stderr
    assert "bash FILE delete" in result.stderr
    assert "gcloud" not in result.stderr


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"zone": None}, "--zone: is missing"),
        ({"tpu": None}, "--tpu: is missing"),
        ({"zone": "a; rm"}, "--zone: 'a; rm' must be one word"),
        ({"name": "Base"}, "--name"),
    ],
)
def test_what_google_would_refuse(changes, problem):
    with pytest.raises(ConfigError, match=problem):
        settings(**changes)


def test_the_run_must_lie_where_all_hosts_see_it_and_the_mesh_fit():
    with pytest.raises(ConfigError, match="--workdir: runs/base must be absolute"):
        gcloud_script(settings(), training(workdir="runs/base"))
    with pytest.raises(ConfigError, match="does not use the 16 devices"):
        gcloud_script(settings(), training(data=3, rows=3))
