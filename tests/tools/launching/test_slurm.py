"""The scripts are run, with stand-ins for the programs of SLURM that do to them what the manuals say."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jax._src.clusters import SlurmCluster
from tools.launching.workloads import AWKWARD, sweep, tokens, training, watch

from transformer_jax.config import ConfigError
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.launching import Evaluation
from transformer_jax.tools.launching.slurm import SlurmSettings, sbatch_script, slurm_script

# srun starts nodes x tasks of each, with the variables of the srun manual that tell them apart, and waits for all.
SRUN = """
echo "$@" > "$NOTES/srun"
while [[ $1 == --* ]]; do shift; done
for ((task = 0; task < SLURM_NTASKS; task++)); do
    SLURM_PROCID=$task SLURM_LOCALID=$((task % TASKS_PER_NODE)) SLURM_STEP_NODELIST='node[007-008]' "$@" & pids+=($!)
    echo $! >> "$NOTES/pids"
done
worst=0
for pid in "${pids[@]}"; do wait "$pid" || worst=$?; done
exit $worst
"""

KILL = "--kill-on-invalid-dep=yes"


def settings(**changes: object) -> SlurmSettings:
    names = ("time", "memory", "partition", "account", "qos", "constraint", "setup")
    defaults = dict.fromkeys(names) | {
        "name": "base",
        "gpus_per_node": 2,
        "nodes": 2,
        "cpus": 4,
        "seconds_to_save": 120,
    }
    return SlurmSettings(**(defaults | changes))


def directives(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    return {flag: value for flag, _, value in (line.partition("=") for line in lines)}


@pytest.fixture
def started(program, notes, tmp_path):
    """Runs a script as a job; the process ends when the job does."""
    program("srun", SRUN)
    program("scancel", 'echo "$@" >> "$NOTES/scancel"; xargs -r kill -TERM < "$NOTES/pids"; : > "$NOTES/pids"')
    program("scontrol", 'echo "$@" >> "$NOTES/scontrol"')

    def start(script: str, behavior: str = "", **variables: str) -> subprocess.Popen:
        file = tmp_path / "run.sbatch"
        file.write_text(script)
        subprocess.run(["bash", "-n", file], check=True)
        asked = directives(script)
        num_tasks = int(asked["nodes"]) * int(asked["ntasks-per-node"])
        environment = {**os.environ, "BEHAVIOR": behavior, "SLURM_JOB_ID": "5000", "SLURM_NTASKS": str(num_tasks)}
        environment |= {"TASKS_PER_NODE": asked["ntasks-per-node"], **variables}
        return subprocess.Popen(["bash", file], env=environment, cwd=tmp_path)

    return start


def test_jobs_before_beside_and_after_a_run_depend_on_it(started, notes, program, tmp_path):
    """A stand-in for sbatch notes its flags and the job, and runs one job of each kind that tokenizes."""
    program(
        "sbatch",
        """n=$(ls "$NOTES" | grep -c ^job-); cat > "$NOTES/job-$n"; echo "$@" > "$NOTES/flags-$n"
        case $n in 0|1) SLURM_ARRAY_TASK_ID=7 NOTES=$NOTES/../own bash "$NOTES/job-$n" >&2 || exit 1;; esac
        echo "$((70 + n));cluster" """,
    )
    program("srun", 'mkdir -p "$NOTES"; echo "$@" >> "$NOTES/srun"')
    asked, workdir = settings(time="24:00:00", partition="long", gpus_per_node=8), f"{tmp_path}/a run"
    after = sweep(3, f"{tmp_path}/sweeps/ft")
    followers = watch(workdir), after, Evaluation(("evaluate", f"--workdir={workdir}"), workdir, is_beside=False)
    script = slurm_script(asked, training(workdir=workdir, shards=12, followers=followers))
    assert started(script).wait(20) == 0
    assert (notes / "job-2").read_text() == slurm_script(asked, training(workdir=workdir))
    flags = [(notes / f"flags-{number}").read_text().split() for number in range(6)]
    succeeded = [["--parsable", f"--dependency=afterok:{job}", KILL] for job in (70, 71, 72, 72)]
    began = ["--parsable", "--dependency=after:72", "--export=ALL,RUN=72"]
    assert flags == [["--parsable"], *succeeded[:2], began, *succeeded[2:]]
    jobs = [directives((notes / f"job-{number}").read_text()) for number in range(6)]
    assert [job["job-name"] for job in jobs] == [
        *("base-tokens", "base-tokens", "base", "base-watch", "base-sweep", "base-evaluate")
    ]
    assert [job.get("array") for job in jobs] == [None, "1-11", None, None, "0-2", None]
    assert [job.get("gpus-per-node") for job in jobs] == [None, None, "8", "1", "1", "1"]
    assert all(job["nodes"] == job["ntasks-per-node"] == "1" for job in jobs[:2] + jobs[3:])
    assert all(job["partition"] == "long" for job in jobs)
    assert Path(jobs[4]["output"]).parent == tmp_path / "sweeps/logs" and (tmp_path / "sweeps/logs").is_dir()
    begins = f"--cpus-per-task=4 transformer-jax tokenize --config=a.py --output=/shared/{AWKWARD} --shard="
    assert (tmp_path / "own/srun").read_text().splitlines() == [f"{begins}{index}/12" for index in (0, 7)]
    order = "tokenizers; tokens, after tokenizers; run, after tokens; watch, when run has started; sweep, after run; "
    assert order in script


def test_tokenizing_alone_is_the_jobs_before_a_run():
    asked = settings(gpus_per_node=0, nodes=1)
    # Both write logs into /shared/logs.
    of_run = slurm_script(asked, training(workdir="/shared/base", shards=12))
    alone = slurm_script(asked, tokens(12))
    jobs, end = of_run.split("set -e\n", 1)[1], 'echo "tokens: job $tokens"\n'
    assert alone.split("set -e\n", 1)[1] == jobs[: jobs.index(end) + len(end)]
    assert "submits\n# these jobs: tokenizers; tokens, after tokenizers.\n" in alone


def has_lines(file: Path, number: int) -> bool:
    return file.exists() and len(file.read_text().splitlines()) >= number


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_watch_gets_the_signal_until_it_ends_that_the_run_has_left_the_queue(started, notes, program):
    """``squeue`` answers when ``notes/queue`` exists. The stand-in for ``evaluate`` does not handle the signal."""
    program("squeue", 'echo "$@" >> "$NOTES/squeue"; cat "$NOTES/queue" 2> /dev/null')
    program("scancel", 'echo "$@" >> "$NOTES/scancel"; xargs kill -USR1 < "$NOTES/pids"')
    script = sbatch_script(settings(nodes=1, gpus_per_node=0, time="1:00:00"), watch())
    job = started(re.sub("sleep [0-9]+", "sleep 0.05", script), "forever", RUN="72")
    # SLURM does not answer, and then lists the run, as it does while the run waits to start again.
    until(lambda: has_lines(notes / "squeue", 2))
    write_whole(notes / "queue", "172\n72\n")
    until(lambda: has_lines(notes / "squeue", 5) and (notes / "ready-0").exists())
    assert (notes / "arguments-0").read_text().splitlines() == ["evaluate", "--watch", "--workdir=/shared/runs/base"]
    assert not (notes / "scancel").exists()
    write_whole(notes / "queue", "172\n")
    until(lambda: has_lines(notes / "scancel", 2))
    assert set((notes / "scancel").read_text().splitlines()) == {"--signal=USR1 5000"} and job.poll() is None
    os.kill(int((notes / "pids").read_text()), signal.SIGTERM)
    assert job.wait(20) == 0 and not (notes / "scontrol").exists()


def until_ready(notes: Path, number: int) -> None:
    until(lambda: len(list(notes.glob("ready-*"))) >= number)


def test_jax_finds_all_tasks_of_a_training(started, notes, monkeypatch):
    script = sbatch_script(settings(), training(f"--config.data.directory={AWKWARD}"))
    assert started(script).wait(20) == 0
    ids, shown = set(), set()
    for file in notes.glob("environment-*"):
        with monkeypatch.context() as task:
            for line in file.read_text().splitlines():
                name, _, value = line.partition("=")
                if name.startswith("SLURM"):
                    task.setenv(name, value)
            assert SlurmCluster.is_env_present()
            assert SlurmCluster.get_process_count() == 4
            assert SlurmCluster.get_coordinator_address(None, None).startswith("node007:")
            ids.add(SlurmCluster.get_process_id())
            shown.add(SlurmCluster.get_local_process_id())
    assert ids == {0, 1, 2, 3}
    # JAX lets a task see the GPU of its local number: there must be as many, and all must be shown to each.
    assert shown == set(range(int(directives(script)["gpus-per-node"])))
    assert "--gpu-bind=none --cpus-per-task=4 " in (notes / "srun").read_text()
    assert directives(script)["output"] == "/shared/runs/logs/base-%j.log"
    arguments = (notes / "arguments-3").read_text().splitlines()
    assert (arguments[:2], arguments[-1]) == (["train", "--distributed"], f"--config.data.directory={AWKWARD}")


def test_before_the_time_limit_all_save_and_the_job_queues_again(started, notes):
    script = sbatch_script(settings(time="24:00:00"), training())
    assert directives(script)["signal"] == "B:USR1@120"
    assert "requeue" in directives(script)
    job = started(script, "forever")
    until_ready(notes, 4)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == 0
    # Queued again only when the slowest has saved.
    assert (notes / "saved").read_text().count("saved") == 4
    assert (notes / "scancel").read_text() == "--signal=TERM 5000\n"
    assert (notes / "scontrol").read_text() == "requeue 5000\n"


def test_a_worker_of_a_sweep_queues_itself_again_and_not_the_array(started, notes):
    script = sbatch_script(settings(nodes=1, time="1:00:00"), sweep(3))
    assert directives(script)["array"] == "0-2"
    assert directives(script)["output"] == "/shared/logs/base-%A_%a.log"
    # SLURM gives one element of an array the number of the array itself.
    job = started(script, "forever", SLURM_ARRAY_JOB_ID="5000", SLURM_ARRAY_TASK_ID="2")
    until_ready(notes, 1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == 0
    assert (notes / "scancel").read_text() == "--signal=TERM 5000_2\n"
    assert (notes / "scontrol").read_text() == "requeue 5000_2\n"
    assert (notes / "arguments-0").read_text().splitlines()[-1] == "--workers=1"


@pytest.mark.parametrize("restarts", ["", "9", "10"])
def test_a_run_that_lost_a_process_queues_again_ten_times(started, notes, restarts):
    script = sbatch_script(settings(nodes=1, gpus_per_node=0), training())
    assert started(script, "lost", **({"SLURM_RESTART_COUNT": restarts} if restarts else {})).wait(20) == 75
    assert (notes / "scontrol").exists() == (restarts != "10")


@pytest.mark.parametrize(("behavior", "status"), [("", 0), ("fails", 1)])
def test_what_ends_by_itself_does_not_queue_again(started, notes, behavior, status):
    assert started(sbatch_script(settings(time="24:00:00"), training()), behavior).wait(20) == status
    assert not (notes / "scontrol").exists()


def test_a_job_that_its_owner_cancels_does_not_queue_again(started, notes):
    job = started(sbatch_script(settings(nodes=1, gpus_per_node=0, time="24:00:00"), training()), "forever")
    until_ready(notes, 1)
    job.terminate()
    assert job.wait(20) == -signal.SIGTERM
    os.kill(int((notes / "pids").read_text()), signal.SIGTERM)
    assert not (notes / "scontrol").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gpus_per_node": None}, "--gpus_per_node: is missing"),
        ({"cpus": None}, "--cpus: is missing; write --cpus=8"),
        ({"memory": "64GB"}, "--memory: '64GB' is not a number with one of K, M, G, T, such as 64G"),
        ({}, "--nodes: 2: each worker of a sweep runs on one node"),
        ({"constraint": "a\n#SBATCH --x"}, "--constraint: .* must be one word"),
    ],
)
def test_what_slurm_would_refuse_or_misread(changes, problem):
    with pytest.raises(ConfigError, match=problem):
        sbatch_script(settings(**changes), sweep())


def test_a_run_in_an_object_store_states_a_cache_that_no_other_host_has():
    workload = training(workdir="gs://bucket/base")
    with pytest.raises(ConfigError, match=r"data\.cache_directory: is below the home directory.*/cache-\$USER"):
        slurm_script(settings(), workload)
    own = replace(workload.config.data, cache_directory="/tmp/cache")
    stated = replace(workload, config=replace(workload.config, data=own))
    script, local = slurm_script(settings(), stated), 'SCRATCH="${TRANSFORMER_JAX_SCRATCH:-/tmp/'
    assert "--workdir=gs://bucket/base &" in script and local in script
    assert all(local in sbatch_script(settings(nodes=1), each) for each in (training(), sweep(), watch()))
