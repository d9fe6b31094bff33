"""An sbatch script: a run with one task per GPU, or a job array with one job per worker of a sweep; or a script for bash, which
submits several jobs, such as jobs that tokenize.

From the manuals of sbatch, srun, scancel and scontrol (slurm.schedmd.com). In each task JAX reads SLURM's own variables
(``jax/_src/clusters/slurm_cluster.py``) and selects the GPU with the local number of the task. So every task must see all GPUs
of its node: no ``--gpus-per-task``, no binding.

Before the time limit SLURM signals only the script (``--signal=B:USR1``). The script sends SIGTERM to the tasks with scancel
(srun would kill them), waits until they have saved, and requeues the job: SLURM itself requeues only after a preemption or a
node failure. The script also requeues a job whose status is 75, until it was restarted ten times. SIGTERM to the script is
``scancel`` by its owner, so the job is not requeued.
"""

import re
import shlex
from dataclasses import dataclass, replace

from transformer_jax.config import ConfigError
from transformer_jax.config.checks import is_address
from transformer_jax.tools.launching import (
    LONGEST_NAME,
    Evaluation,
    Sweep,
    Tokenizing,
    Training,
    Workload,
    logs_of,
    needs_cache,
    require_given,
    require_memory,
    require_name,
)

PASSED_THROUGH = ("partition", "account", "qos", "constraint")

HEADER = """#!/bin/bash
# Written by transformer-jax launch slurm. Submit it with sbatch, from the folder that relative paths start from, after
# mkdir -p {logs}: without the folder of its log a job fails at once.
# On SIGTERM it saves and ends; {grace}.
{directives}
{setup}
"""
AFTER_OK = " --dependency=afterok:${job} --kill-on-invalid-dep=yes"
# After the job has started, or was canceled.
AFTER = " --dependency=after:${job} --export=ALL,RUN=${job}"
# Ends a script within a script.
END = "END_OF_JOB"
SUBMISSION = """#!/bin/bash
# Written by transformer-jax launch slurm. Start it with bash, from the folder that relative paths start from. It submits
# these jobs: {order}.
# Start it again after a failure: shards that exist are not tokenized again, and a run resumes.
set -e
mkdir -p {logs}
"""
SUBMITTED = """{job}=$(sbatch --parsable{after} <<'{end}'
{script}{end}
)
{job}=${{{job}%%;*}}
echo "{name}: job ${job}"
"""
LOCAL_SCRATCH = """# Blocks of stores and copies of runs, in a folder that no other host writes.
export TRANSFORMER_JAX_SCRATCH="${TRANSFORMER_JAX_SCRATCH:-/tmp/transformer_jax-$USER}"
"""
RUN = """srun {srun_flags} {command} &
step=$!
wait "$step"
status=$?
"""
# The step waits for the run, and ends once the run is complete, or once all is scored after the job of the run has ended.
WATCHED = """while kill -0 $$ 2> /dev/null; do
    sleep 30
    if queue=$(squeue --me --noheader --format=%A) && ! grep --quiet --line-regexp "$RUN" <<< "$queue"; then
        # A shared disk may show the last checkpoint late.
        sleep 90
        scancel --signal=USR1 "$SLURM_JOB_ID"
    fi
done &
"""
# Until the step handles the signal.
WATCHING = """bash -c 'trap "" USR1; exec "$@"' bash """
JOB = """job=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
"""
LIMITED = """
# Shortly before the time limit the tasks save and end, and the job is requeued to resume.
out_of_time=
save_and_end() {{ out_of_time=yes; scancel --signal=TERM "$job"; }}
trap save_and_end USR1

{run}if [ -n "$out_of_time" ]; then
    wait "$step"
    status=$?
    # 0: finished, which the next start notices; above 128: ended by the signal. Any other failure but 75 would only repeat.
    if [ "$status" -eq 0 ] || [ "$status" -gt 128 ]; then scontrol requeue "$job"; fi
fi
"""
END_OF_RUN = """# 75: a process died or hangs, and the run resumes. A job that was restarted often enough ends.
if [ "$status" -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; then scontrol requeue "$job"; fi
exit "$status"
"""


@dataclass(frozen=True)
class SlurmSettings:
    """Settings of a SLURM launch; fields are the flags of ``transformer-jax launch slurm``."""

    name: str
    gpus_per_node: int | None
    nodes: int
    time: str | None
    seconds_to_save: int
    cpus: int | None
    memory: str | None
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    setup: str | None

    def __post_init__(self) -> None:
        require_name(self.name)
        if self.gpus_per_node is None:
            raise ConfigError("--gpus_per_node: is missing; 0 runs one process per node on its CPU")
        # SLURM gives a task one core otherwise, which feeds no GPU.
        require_given(self, cpus="8")
        require_memory(self.memory, "K|M|G|T")
        for flag in (*PASSED_THROUGH, "time"):
            text = getattr(self, flag)
            if text is not None and not re.fullmatch(r"[^\s\"'`\\$#]+", text):
                raise ConfigError(f"--{flag}: {text!r} must be one word without quotes, $, # and backslashes")

    @property
    def tasks_per_node(self) -> int:
        return self.gpus_per_node or 1


def slurm_script(settings: SlurmSettings, workload: Workload) -> str:
    """A script for sbatch; of several jobs, one for bash that submits all of them.

    Raises ConfigError if the workload does not fit the nodes.
    """
    logs, tokenizing = logs_of(workload.workdir), workload.tokenizing
    jobs: list[tuple[str, str, str]] = []
    if tokenizing is not None:
        array = [f"--array=1-{tokenizing.shards - 1}"]
        jobs = [
            ("tokenizers", "", _tokenizing_script(settings, tokenizing, logs, "0", [])),
            ("tokens", AFTER_OK, _tokenizing_script(settings, tokenizing, logs, "$SLURM_ARRAY_TASK_ID", array)),
        ]
    if not isinstance(workload, Tokenizing):
        jobs.append(("run", AFTER_OK if jobs else "", sbatch_script(settings, workload)))
    for follower in workload.followers:
        jobs.append((follower.kind, AFTER if follower.is_beside else AFTER_OK, _follower_script(settings, follower)))
    if len(jobs) == 1:
        return jobs[0][2]
    order: list[str] = []
    written, before = [], ""
    for name, after, script in jobs:
        job = name if name in ("tokenizers", "tokens", "run") else "job"
        order.append(name + {"": "", AFTER: f", when {before} has started", AFTER_OK: f", after {before}"}[after])
        written.append(SUBMITTED.format(job=job, after=after.format(job=before), script=script, end=END, name=name))
        # All jobs after the run depend on it, not on each other.
        before = before if before == "run" else job
    folders = dict.fromkeys(logs_of(each.workdir) for each in (workload, *workload.followers))
    return "".join([SUBMISSION.format(logs=" ".join(folders), order="; ".join(order)), *written])


def _follower_script(settings: SlurmSettings, follower: Sweep | Evaluation) -> str:
    """One task, or an array of tasks, on one device."""
    name = f"{settings.name[: LONGEST_NAME - 9]}-{follower.kind}"
    one = replace(settings, name=name, nodes=1, gpus_per_node=min(settings.gpus_per_node or 0, 1))
    return sbatch_script(one, follower)


def _tokenizing_script(settings: SlurmSettings, tokenizing: Tokenizing, logs: str, index: str, array: list[str]) -> str:
    """A job, or an array of jobs, with one task on CPUs for each shard."""
    own = replace(settings, name=f"{settings.name[: LONGEST_NAME - 7]}-tokens", nodes=1, gpus_per_node=0)
    log = f"--output={logs}/{own.name}-{'%A_%a' if array else '%j'}.log"
    asked = [each for each in _directives(own, 1) if not each.startswith("--signal=")]
    lines = "\n".join(f"#SBATCH {line}" for line in [*asked, *array, log])
    setup = f"set -e\n{settings.setup}\n" if settings.setup else ""
    return f"#!/bin/bash\n{lines}\n{setup}srun --cpus-per-task={settings.cpus} {tokenizing.command(index)}\n"


def sbatch_script(settings: SlurmSettings, workload: Training | Sweep | Evaluation) -> str:
    """The script of a run or a sweep; raises ConfigError if it does not fit the nodes."""
    logs, begins = logs_of(workload.workdir), LOCAL_SCRATCH
    if isinstance(workload, Training):
        num_tasks = settings.nodes * settings.tasks_per_node
        workload.require_fits(num_tasks)
        tasks_per_node, command, array = settings.tasks_per_node, shlex.join(workload.command(num_tasks)), []
        log = f"{logs}/{settings.name}-%j.log"
        if is_address(workload.workdir) and needs_cache(workload.config):
            problem = "is below the home directory, which hosts often share; set a folder on a disk of each host"
            raise ConfigError(
                f"data.cache_directory: {problem}, such as --config.data.cache_directory=/tmp/cache-$USER"
            )
    else:
        if settings.nodes != 1:
            raise ConfigError(f"--nodes: {settings.nodes}: each worker of a sweep runs on one node; leave it out")
        if isinstance(workload, Sweep):
            workload.require_fits(settings.tasks_per_node)
        tasks_per_node, command = 1, shlex.join(workload.command())
        array = [f"--array=0-{workload.workers - 1}"] if isinstance(workload, Sweep) else []
        log = f"{logs}/{settings.name}-{'%A_%a' if array else '%j'}.log"
    lines = "\n".join(f"#SBATCH {line}" for line in [*_directives(settings, tasks_per_node), *array, f"--output={log}"])
    setup = f"\nset -e\n{settings.setup}\nset +e\n" if settings.setup else ""
    gpus = ["--gpu-bind=none"] if settings.gpus_per_node else []
    # Since version 22.05 srun no longer takes --cpus-per-task from the job.
    cpus = f"--cpus-per-task={settings.cpus}"
    if isinstance(workload, Evaluation) and workload.is_beside:
        begins, command = begins + WATCHED, WATCHING + command
    run = begins + RUN.format(srun_flags=shlex.join(["--kill-on-bad-exit=1", *gpus, cpus]), command=command)
    if settings.time is not None:
        run = LIMITED.format(run=run)
    asked = f"it gets one {settings.seconds_to_save} s before the time limit (--seconds_to_save)"
    grace = asked if settings.time is not None else "after a preemption it has the GraceTime of the partition"
    return HEADER.format(logs=logs, directives=lines, setup=setup, grace=grace) + JOB + run + END_OF_RUN


def _directives(settings: SlurmSettings, tasks_per_node: int) -> list[str]:
    asked = {
        "job-name": settings.name,
        "nodes": settings.nodes,
        "ntasks-per-node": tasks_per_node,
        "gpus-per-node": settings.gpus_per_node or None,
        "cpus-per-task": settings.cpus,
        "mem": settings.memory,
        "time": settings.time,
        # A requeued job appends to its log.
        "open-mode": "append",
        "signal": f"B:USR1@{settings.seconds_to_save}" if settings.time is not None else None,
    }
    asked |= {flag: getattr(settings, flag) for flag in PASSED_THROUGH}
    return [f"--{flag}={value}" for flag, value in asked.items() if value is not None] + ["--requeue"]
