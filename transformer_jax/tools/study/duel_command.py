"""``duel``: which ideas help, at equal budgets, with error bars."""

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.registry import load_command
from transformer_jax.config import ConfigError, Metric, resolve
from transformer_jax.config.conversion import read_value
from transformer_jax.files.atomic_files import require_writable, write_whole
from transformer_jax.registry.python_files import loaded_plugins
from transformer_jax.tools.sizing.plan import seconds_of
from transformer_jax.tools.sizing.sizes import require_sizes
from transformer_jax.tools.study.comparability import require_comparable, require_same_text
from transformer_jax.tools.study.contenders import BASE, EQUAL, OFF, Contender, read_contenders
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, TrialRow
from transformer_jax.tools.study.worker_processes import PARENT, end_with_parent, gpu_environments, gpus, share_cores

GRACE_SECONDS = 120.0
# Environment variable of the process that makes the plan. It uses the devices, which workers need
# afterwards.
PLANNER = "TRANSFORMER_JAX_DUEL_PLANNER"


@flags.command(
    flags.config,
    flags.strings("ideas", None, "parts, files and settings, see above", required=True),
    flags.enum("equal", "flops", EQUAL, "the budget that is the same for all"),
    flags.string("budget", "", "time of a run of the base, 20m (default: training.num_updates updates)"),
    flags.integer("seeds", 5, "runs of the base, and of every idea", lower_bound=2),
    flags.string("workdir", None, "folder of the duel", required=True),
    flags.string("metric", "", "bleu, chrf, loss, ... (default: the metric that selects checkpoints)"),
    flags.number("effect", 0.0, "difference that matters, for the power (0: the noise floor)", lower_bound=0),
    flags.integer("workers", 0, "workers on this host, as of sweep", lower_bound=0),
)
def duel(values: flags.Values) -> int:
    r"""Test which ideas help: a base and ideas at equal budgets, with paired seeds and error bars.

    Examples:
        transformer-jax duel --config=quickstart --ideas=rope,rmsnorm --budget=30s --seeds=3 \
            --workdir=runs/duel
        transformer-jax duel --config=multi30k:tiny --equal=time --ideas="rope+qk_norm,mine.py" \
            --workdir=runs/duel

    An idea is the name of a part (rope, or schedule:cosine if several kinds have the name), a file
    that registers parts, or SETTING=VALUE. Its settings follow a colon, separated by semicolons:
    rope:base=1e5;model.dropout=0.2. A plus sign joins ideas into one, and LABEL=IDEA names one in
    reports: diff=differential_attention.py.

    All runs are trials of a sweep: Ctrl-C saves and stops, the same command resumes, also on more
    machines, and one with more ideas or seeds reuses the runs that are there. At the end WORKDIR
    holds report.html, .md, .tex and .csv, result.json, and pictures (PNG, SVG, PDF). docs/duel.md
    explains budgets and tests.
    """
    if find_spec("optuna") is None:
        raise ConfigError("duel", "needs Optuna", "pip install optuna")
    contenders, metric = _checked(values)
    from transformer_jax.tools.study.duel_plan import SWEEP_FILE, Plan, make_plan, read_plan, require_same_duel

    workdir = require_writable(values.workdir, "--workdir").absolute()
    overrides = [list(pair) for pair in flags.overrides_of(values)]
    files = [str(Path(file).expanduser().absolute()) for file in values.plugin]
    digests = {file: digest for file, digest in loaded_plugins().items() if file in files}
    new_plan = Plan(values.config, overrides, values.equal, values.budget, metric.key, plugins=digests)
    plan = read_plan(workdir)
    if plan:
        # An idea keeps the name that its runs have.
        for index, contender in enumerate(contenders):
            renamed = (replace(contender, name=name) for name in plan.planned)
            contenders[index] = next((one for one in renamed if one == plan.planned[one.name].contender), contender)
        require_same_duel(plan, new_plan, contenders)
        # The file of an older version imports other modules.
        write_whole(workdir / "sweep.py", SWEEP_FILE)
    if PLANNER in os.environ:
        end_with_parent()
        share_cores(0, int(os.environ[PLANNER]))
        make_plan(new_plan, contenders, workdir, lambda line: print(line, flush=True))
        return 0

    from transformer_jax.tools.study.document import section_text
    from transformer_jax.tools.study.duel_report import Result, power_statement, results_of, write_duel_report

    names = [contender.name for contender in contenders]
    if (not plan or any(name not in plan.planned for name in names)) and (status := _plan_in_process(values, workdir)):
        return status
    plugins = [*values.plugin, *(file for contender in contenders for file in contender.files)]

    def look() -> "tuple[Plan, list[TrialRow], list[Result], str]":
        # Another command may add ideas meanwhile.
        plan, trials = read_plan(workdir) or new_plan, _trials(workdir, values.seeds)
        results = results_of(plan, metric, trials)
        return plan, trials, results, power_statement(plan, results, values.seeds, metric, values.effect)

    # The base runs first: its noise floor limits the effects that the ideas' runs can show.
    for rows in ([BASE], names):
        print(look()[-1], flush=True)
        if status := _sweep(values, workdir, rows, plugins):
            break
    plan, trials, results, power = look()
    points = [(name, seed) for name in names for seed in range(values.seeds)]
    ended = sum(trial.has_ended and (trial.point["row"], trial.point["seed"]) in points for trial in trials)
    words = shlex.join(["transformer-jax", "duel", *values.as_arguments()])
    section, written = write_duel_report(plan, results, metric, power, len(points) - ended, workdir, command=words)
    print("\n" + section_text(section) + "\n\n" + "\n".join(f"  {file}" for file in written))
    return status


def _checked(values: flags.Values) -> tuple[list[Contender], Metric]:
    """Return the contenders and the metric after checking all flags, which takes a second."""
    recipe, overrides = flags.required_config(values), flags.overrides_of(values)
    require_sizes(recipe, overrides, "duel")
    base = resolve(recipe, overrides)
    metrics = {other.name: other for other in base.metrics if not other.needs or attrgetter(other.needs)(base)}
    if values.metric and values.metric not in metrics:
        raise ConfigError("--metric", f"{values.metric!r} is not measured here", f"one of {', '.join(metrics)}")
    if values.budget:
        seconds_of(values.budget)
    fixed = {"seed", *OFF} | ({"training.num_updates"} if values.budget else set())
    for name in sorted(name for name, value in overrides if name in fixed and not (name in OFF and value == "0")):
        raise ConfigError(f"--config.{name}", "a duel sets it itself", "leave it out")
    contenders = read_contenders(recipe, overrides, values.ideas)
    metric = metrics[values.metric or base.selection.name]
    fixed |= {"training.num_updates"}
    every = "training.evaluate_every"
    for contender in contenders:
        for name in sorted(fixed & contender.settings.keys()):
            raise ConfigError("--ideas", f"{contender.name}: a duel sets {name} itself", "leave it out")
        settings = {**dict(overrides), **contender.settings}
        if every in settings and not read_value(every, settings[every]):
            raise ConfigError(every, f"{contender.name} has 0, and a duel compares validations", "leave it out")
        try:
            require_comparable(metric, contender.settings, base)
            require_same_text([base, resolve(recipe, overrides, contender.settings)])
        except ConfigError as error:
            raise ConfigError("--ideas", f"{contender.name}: {error}") from None
    return contenders, metric


def _plan_in_process(values: flags.Values, workdir: Path) -> int:
    """Make the plan in another process and return its exit status."""
    command = [sys.executable, "-m", "transformer_jax", "duel", *values.as_arguments()]
    log = workdir / "plan.log"
    # On the devices and cores of a worker, whose runs the pilots measure.
    environments = gpu_environments(values.workers or max(len(gpus()), 1), gpus())
    with log.open("wb") as file:
        environment = {**os.environ, **environments[0], PARENT: str(os.getpid()), PLANNER: str(len(environments))}
        status = subprocess.run(command, env=environment, stderr=file, check=False).returncode
    if status:
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-12:]), file=sys.stderr)
        print(f"no plan; see {log}", file=sys.stderr)
    return status


def _sweep(values: flags.Values, workdir: Path, rows: list[str], plugins: list[str]) -> int:
    """Train rows of the duel as the command ``sweep`` does, and return its exit status."""
    command = load_command("sweep")
    arguments = [f"--sweep={workdir / 'sweep.py'}:{values.seeds}", f"--workdir={workdir}", f"--rows={','.join(rows)}"]
    arguments += [f"--workers={values.workers}", f"--grace_seconds={GRACE_SECONDS}"]
    return command.run(flags.parse(command.flags, [*arguments, *(f"--plugin={file}" for file in plugins)]))


def _trials(workdir: Path, seeds: int) -> list[TrialRow]:
    """Return the trials of the duel. A study must have no runs of another folder."""
    from transformer_jax.tools.study.duel_plan import sweep_of
    from transformer_jax.tools.study.optuna_study import open_study, trial_rows

    sweep = sweep_of(workdir, f"{seeds}")
    rows = trial_rows(open_study(sweep, workdir, workdir.name, GRACE_SECONDS), sweep)
    if not os.environ.get(STORAGE_VARIABLE):
        # The study is a file in the folder, and the runs move with it.
        return [row._replace(folder=row.folder and f"{workdir}/trials/{Path(row.folder).name}") for row in rows]
    for row in rows:
        if row.folder and Path(row.folder).parents[1].resolve() != workdir.resolve():
            problem = f"the study {workdir.name!r} has runs in {row.folder}"
            raise ConfigError("--workdir", problem, "use a folder of another name")
    return rows
