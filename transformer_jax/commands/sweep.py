"""Train one recipe in many variants: a grid, or a search for the best settings, by any number of workers.

Examples:
    transformer-jax sweep --sweep=experiments/paper_table3/sweep.py:small --workdir=runs/table3 --workers=2 --rows=base,big
    transformer-jax sweep --sweep=search.py --workdir=runs/search --storage=postgresql+psycopg://me@host/studies

A sweep file is Python with a function get_sweep() that returns a Sweep:

    from transformer_jax.tools.sweeps.definition import Sweep
    from transformer_jax.tools.sweeps.ranges import Choice, Integers, LogUniform, Uniform

    def get_sweep():
        space = {"optimizer.learning_rate": LogUniform(5e-4, 5e-3), "model.dropout": Choice(0.1, 0.2, 0.3)}
        return Sweep(config="multi30k:tiny_hour", space=space, sampler="tpe", pruner="median", trials=20)

sampler: grid (every combination of rows, seeds and Choices), random, tpe or cma-es. pruner: none, median, successive_halving or
hyperband. metric: what the task selects by (validation/bleu, validation/bits_per_byte), validation/chrf,
validation/loss or validation/perplexity. rows={"wide": {"model.d_ff": 64}}
names lists of overrides, seeds=(0, 1) repeats each, overrides={...} is for all.

Each trial is a run directory in WORKDIR/trials. Give the same command on other machines to add workers: without --storage the
study is a file in WORKDIR, so that has to lie on a disk they share. A database needs none; an address with a password belongs
into the environment, TRANSFORMER_JAX_SWEEP_STORAGE, and not into --storage, which every user of the host can read.
A worker that dies loses nothing on
such a disk: another resumes its trial from the last checkpoint (without one, from its beginning). Ctrl-C saves and stops; the
same command resumes, and one with more rows, seeds or trials adds them. At the end WORKDIR holds leaderboard.md, .html and
.csv, and pictures.

--vectorize=8 trains up to eight trials that differ in hyperparameters alone (rates, warm-up, smoothing, with data.seed
the seed too): one program, spread over the worker's devices.
"""

import os
import sys
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.flag_parsing import define_override_flag, overrides_of
from transformer_jax.config import ConfigError
from transformer_jax.config.secrets import secrets_in
from transformer_jax.tools.launching.workload import STORAGE_VARIABLE

# Exit statuses of a command that SIGINT or SIGTERM stopped.
INTERRUPTED = 130, 143
# Environment variables for a worker: its number, and the storage, whose address may hold a password and so is no flag.
WORKER, STORAGE = "TRANSFORMER_JAX_SWEEP_WORKER", STORAGE_VARIABLE

if TYPE_CHECKING:
    from transformer_jax.tools.sweeps.devices import Environment
    from transformer_jax.tools.sweeps.study import SharedStudy


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_string("sweep", None, "a sweep file, FILE.py[:ARGUMENT]", flag_values=values, required=True)
    flags.DEFINE_string("workdir", None, "folder of the sweep", flag_values=values, required=True)
    flags.DEFINE_list("rows", [], "names of the rows to train (default: all of the sweep)", flag_values=values)
    define_override_flag(values)
    where = "a database (postgresql+psycopg://..., mysql+pymysql://...) or the path of a journal file"
    flags.DEFINE_string("storage", "", f"{where} (default: a journal file in WORKDIR)", flag_values=values)
    flags.DEFINE_string("study", "", "name of the study (default: that of the folder)", flag_values=values)
    flags.DEFINE_integer(
        "workers",
        0,
        "workers of this host, which share its GPUs and cores (0: one a GPU, else one)",
        flag_values=values,
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "vectorize",
        1,
        "most trials to train at a time as one program; they differ in hyperparameters alone",
        flag_values=values,
        lower_bound=1,
    )
    flags.DEFINE_float(
        "grace_seconds",
        120.0,
        "time without a heartbeat after which a worker counts as dead",
        flag_values=values,
        lower_bound=1.0,
    )
    flags.DEFINE_boolean("retry_failed", False, "retry failed trials", flag_values=values)


def flags_of_trials(values: flags.FlagValues) -> list[str]:
    """The flags that choose the trials, override their settings and load plugins, as arguments."""
    rows = [f"--rows={','.join(values.rows)}"] if values.rows else []
    plugins = [f"--plugin={file}" for file in values.plugin]
    return [*rows, *plugins, *(f"--config.{key}={text}" for key, text in overrides_of(values))]


def run(values: flags.FlagValues) -> int:
    """Trains all trials; 0 when all have ended and not all failed, 1 when not, 130 when it was stopped."""
    if find_spec("optuna") is None:
        raise ConfigError("sweep: needs Optuna; pip install optuna cmaes")
    from transformer_jax.tools.sweeps.definition import load_sweep, require_vectorizable
    from transformer_jax.tools.sweeps.devices import default_workers, environments, gpus, has_tpu
    from transformer_jax.tools.sweeps.storage import open_storage, storage_url
    from transformer_jax.tools.sweeps.study import SharedStudy

    number = os.environ.get(WORKER)
    sweep = load_sweep(values.sweep, overrides_of(values), values.rows)
    if values.vectorize > 1:
        require_vectorizable(sweep)
    workdir = Path(values.workdir).expanduser().absolute()
    workers = values.workers or default_workers()
    if workers > 1 and has_tpu():
        raise ConfigError(f"--workers: {workers}, but a TPU host has one process; use 1 here and other hosts beside it")
    worker_environments = environments(workers, gpus() if number is None else [])
    url = storage_url(values.storage or os.environ.get(STORAGE, ""), workdir)
    if secrets_in(values.storage):
        print(
            f"--storage: the password stands in the process list; {STORAGE} in the environment does not",
            file=sys.stderr,
        )
    study = SharedStudy(sweep, open_storage(url), values.study or workdir.name, values.grace_seconds)
    if number is not None:
        return _run_worker(int(number), workers, study, workdir, values.vectorize)
    if values.retry_failed:
        study.retry_failed()
    worker_environments = [each | {WORKER: str(n), STORAGE: url} for n, each in enumerate(worker_environments)]
    return _coordinate(values, study, workdir, worker_environments)


def _run_worker(number: int, workers: int, study: "SharedStudy", workdir: Path, vectorize: int) -> int:
    """Runs one worker, on its part of the cores, until all trials have ended."""
    from transformer_jax.runs.shared_programs import SharedPrograms
    from transformer_jax.runs.train import train_vectorized
    from transformer_jax.runtime.preemption import ending_at_once
    from transformer_jax.tools.sweeps.coordinator import die_with_parent
    from transformer_jax.tools.sweeps.devices import cores_of
    from transformer_jax.tools.sweeps.worker import Worker

    die_with_parent()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores_of(number, workers, sorted(os.sched_getaffinity(0))))
    # Trials that differ only in hyperparameters compile once.
    train = partial(train_vectorized, shared=SharedPrograms())
    # The signals that make a run save and stop also end a worker between runs.
    with ending_at_once():
        Worker(study, workdir, train, vectorize).work()
    return 0


def _coordinate(
    values: flags.FlagValues, study: "SharedStudy", workdir: Path, worker_environments: "list[Environment]"
) -> int:
    """Starts the workers, shows their progress, and writes the leaderboard."""
    from transformer_jax.runtime.atomic_files import require_writable
    from transformer_jax.tools.reports.document import section_text
    from transformer_jax.tools.sweeps.coordinator import log_file, run_workers
    from transformer_jax.tools.sweeps.leaderboard import tables, trial_table, write_leaderboard
    from transformer_jax.tools.sweeps.overview import rows
    from transformer_jax.tools.sweeps.pictures import draw_study
    from transformer_jax.tools.sweeps.progress import SweepProgress
    from transformer_jax.tools.sweeps.storage import UNREACHABLE, reaching

    logs = require_writable(workdir, "--workdir") / "workers"
    command = [
        sys.executable,
        "-m",
        "transformer_jax",
        "sweep",
        f"--sweep={values.sweep}",
        f"--workdir={values.workdir}",
    ]
    command += [f"--study={study.name}", f"--grace_seconds={values.grace_seconds}"]
    command += [f"--workers={len(worker_environments)}", f"--vectorize={values.vectorize}", *flags_of_trials(values)]
    print(
        f"study {study.name!r}: {len(study.trials())} trials, {len(worker_environments)} workers here; they print to {logs}"
    )
    with SweepProgress() as progress:

        def look() -> None:
            # If the study cannot be reached, the workers log it and continue.
            with suppress(*UNREACHABLE):
                progress.show(trial_table(study.sweep, rows(study)))

        statuses = run_workers(command, worker_environments, logs, look)
    with reaching(study.storage):
        trials = rows(study)
    pictures = draw_study(study, workdir)
    written = write_leaderboard(study.sweep, trials, pictures, workdir)
    print("\n\n".join(section_text(section) for section in tables(study.sweep, trials)))
    print("\n" + "\n".join(f"  {file}" for file in (*written, *pictures)))
    for number, status in enumerate(statuses):
        if status:
            print(f"worker {number} ended with status {status}; see {log_file(logs, number)}", file=sys.stderr)
    if stopped := [status for status in statuses if status in INTERRUPTED]:
        print("stopped; the same command resumes", file=sys.stderr)
        return stopped[0]
    if trials and all(trial.state == "failed" for trial in trials):
        print(f"all {len(trials)} trials failed; --retry_failed tries them again", file=sys.stderr)
        return 1
    return int(any(trial.state in ("waiting", "running") for trial in trials))
