import os
import sys
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError
from transformer_jax.errors import StoreError
from transformer_jax.files.atomic_files import require_writable, write_whole
from transformer_jax.files.paths import as_path, is_address
from transformer_jax.run_directory.layout import keep_text
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, load_sweep
from transformer_jax.tools.study.worker_processes import (
    end_with_parent,
    gpu_environments,
    gpus,
    log_file,
    run_workers,
    share_cores,
)

# Exit statuses of a command that SIGINT or SIGTERM stopped.
INTERRUPTED = 130, 143
SCRATCH = "TRANSFORMER_JAX_SCRATCH"
# Environment variable of a worker process with its number.
WORKER = "TRANSFORMER_JAX_SWEEP_WORKER"


def flags_of_trials(values: flags.Values) -> list[str]:
    """Return the arguments that a worker needs too: rows, overrides, plugins and trust."""
    rows = [f"--rows={','.join(values.rows)}"] if values.rows else []
    plugins = [f"--plugin={file}" for file in values.plugin] + ["--trust_config"] * values.trust_config
    return [*rows, *plugins, *(f"--config.{key}={text}" for key, text in flags.overrides_of(values))]


@flags.command(
    flags.string("sweep", None, "a sweep file, FILE.py[:ARGUMENT]", required=True),
    flags.string("workdir", None, "folder of the sweep, or its address in an object store", required=True),
    flags.strings("rows", [], "names of the rows to train (default: all of the sweep)"),
    flags.overrides,
    flags.string("study", "", "name of the study (default: name of the folder)"),
    flags.integer("workers", 0, "workers on this host, which share it (0: one a GPU, else one)", lower_bound=0),
    flags.number("grace_seconds", 120.0, "seconds without a heartbeat until a worker counts as dead", lower_bound=1.0),
    flags.boolean("retry_failed", False, "retry failed trials"),
)
def sweep(values: flags.Values) -> int:
    r"""Train one recipe in many variants, a grid or a search, by any number of workers.

    Example:
        transformer-jax sweep --sweep=experiments/paper_table3/sweep.py:small \
            --workdir=runs/table3 --workers=2 --rows=base,big

    A sweep file is Python with a function get_sweep() that returns a Sweep:

        from transformer_jax.tools.study.sweeps import Choice, LogUniform, Sweep

        def get_sweep():
            rates, dropout = LogUniform(5e-4, 5e-3), Choice(0.1, 0.2, 0.3)
            space = {"optimizer.learning_rate": rates, "model.dropout": dropout}
            search = {"sampler": "tpe", "pruner": "median", "trials": 20}
            return Sweep("multi30k:tiny_hour", space=space, **search)

    sampler: grid (every combination of rows, seeds and Choices), random, tpe or cma-es. pruner:
    none, median, successive_halving or hyperband. metric: by default the metric of the task.
    rows={"wide": {"model.d_ff": 64}} names lists of overrides, seeds=(0, 1) repeats them,
    overrides={...} is for all.

    A trial is a run directory in WORKDIR/trials. Optuna keeps the study: in WORKDIR/study.sqlite3,
    or in the database whose SQLAlchemy URL is in the environment variable
    TRANSFORMER_JAX_SWEEP_STORAGE. Give the same command on other machines, with a WORKDIR on a
    shared disk or at s3:// or gs://, to add workers. Ctrl-C saves and stops. The same command
    resumes, and one with more rows, seeds or trials adds them. WORKDIR/sweep_files keeps the sweep
    file. At the end WORKDIR holds leaderboard.md, .html and .csv, and a picture. docs/sweeps.md has
    more.
    """
    if find_spec("optuna") is None:
        raise ConfigError("sweep", "needs Optuna", "pip install optuna cmaes")
    from transformer_jax.tools.study.optuna_study import UNREACHABLE, answered, open_study, retry_failed, trial_rows

    sweep = load_sweep(values.sweep, flags.overrides_of(values), values.rows)
    address, stored = values.workdir.rstrip("/"), None
    if is_address(address):
        if not os.environ.get(STORAGE_VARIABLE):
            remedy = f"set {STORAGE_VARIABLE}, such as postgresql+psycopg://USER@HOST/NAME"
            raise ConfigError("--workdir", f"{address}: a store cannot hold the study", remedy)
        stored, name = as_path(address), f"sweep-{sha256(address.encode()).hexdigest()[:16]}"
        workdir = scratch_folder() / name / address.rpartition("/")[2]
    else:
        workdir = Path(address).expanduser().absolute()
        address = str(workdir)
    require_writable(workdir, "--workdir")
    file = Path(values.sweep.partition(":")[0]).expanduser()
    # A duel writes its sweep file there itself.
    if WORKER not in os.environ and file.absolute().parent != workdir:
        keep_text((stored or workdir) / "sweep_files", file.name, file.read_bytes())
    study = open_study(sweep, workdir, values.study or workdir.name, values.grace_seconds)
    if WORKER in os.environ:
        from transformer_jax.runtime.preemption import ending_at_once
        from transformer_jax.tools.study.worker import work

        end_with_parent()
        share_cores(int(os.environ[WORKER]), values.workers)
        # The signals that make a run save and stop also end a worker between runs.
        with ending_at_once():
            work(study, sweep, address, values.grace_seconds)
        return 0

    from transformer_jax.tools.study.document import section_text
    from transformer_jax.tools.study.runs_table import trial_table, write_leaderboard

    if values.retry_failed:
        retry_failed(study, sweep)
    environments = gpu_environments(values.workers or max(len(gpus()), 1), gpus())
    logs = workdir / "workers"
    command = [sys.executable, "-m", "transformer_jax", "sweep", f"--sweep={values.sweep}", f"--workdir={address}"]
    command += [f"--study={study.study_name}", f"--grace_seconds={values.grace_seconds}"]
    command += [f"--workers={len(environments)}", *flags_of_trials(values)]
    print(f"study {study.study_name!r}: {len(sweep.points())} trials, {len(environments)} workers here; logs in {logs}")
    printed = set[str]()

    def print_progress() -> None:
        # The workers log that the database cannot be reached.
        with suppress(*UNREACHABLE):
            headings, *rows = trial_table(sweep, trial_rows(study, sweep)).lines
            for row in rows:
                line = "  ".join(f"{name} {cell}" for name, cell in zip(headings, row, strict=True) if cell)
                if line not in printed:
                    print(line)
                printed.add(line)

    numbered = [variables | {WORKER: str(number)} for number, variables in enumerate(environments)]
    statuses = run_workers(command, numbered, logs, print_progress)
    trials = answered(lambda: trial_rows(study, sweep))
    sections, written = write_leaderboard(sweep, trials, workdir)
    print("\n\n".join(map(section_text, sections)))
    is_uploaded = True
    if stored:
        try:
            for file in written:
                write_whole(stored / file.name, file.read_bytes())
        except StoreError as error:
            print(f"{error}. The leaderboard is in {workdir}. The same command uploads it.", file=sys.stderr)
            is_uploaded = False
    print("\n" + "\n".join(f"  {address if is_uploaded else workdir}/{file.name}" for file in written))
    for number, status in enumerate(statuses):
        if status:
            print(f"worker {number} ended with status {status}; see {log_file(logs, number)}", file=sys.stderr)
    if stopped := [status for status in statuses if status in INTERRUPTED]:
        print("stopped; the same command resumes", file=sys.stderr)
        return stopped[0]
    if trials and all(trial.state == "failed" for trial in trials):
        print(f"all {len(trials)} trials failed; --retry_failed tries them again", file=sys.stderr)
        return 1
    points = sweep.points()
    asked = [trial for trial in trials if not sweep.is_grid or trial.point in points]
    is_over = all(trial.has_ended for trial in asked) and len(asked) >= len(points)
    return 0 if is_over and is_uploaded else 1


def scratch_folder() -> Path:
    """Return a folder on this host for logs of a sweep at an address.

    Raises ConfigError if another user, except root, owns it or a link to it.
    """
    folder = Path(os.environ.get(SCRATCH) or "~/.cache/transformer_jax/scratch").expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owners = {folder.lstat().st_uid, folder.stat().st_uid}
    # In a container root may use a folder of the host.
    if os.getuid() and owners - {os.getuid(), 0}:
        problem = f"{folder} belongs to another user, who could change its files"
        raise ConfigError(SCRATCH, problem, "set a folder that is yours")
    return folder
