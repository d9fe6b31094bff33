import itertools
import os
import shlex
import sys
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.commands.evaluate import evaluate
from transformer_jax.commands.tokenize import checked_config, tokenize
from transformer_jax.commands.train import add_flags_to_overrides, train
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.run_settings import used_settings
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import is_address
from transformer_jax.tools.launching.job_files import TEMPLATES, TEXTS, TOKENIZING, Job, beside, job_file, job_name
from transformer_jax.tools.study.sweep_command import flags_of_trials, sweep
from transformer_jax.tools.study.sweeps import STORAGE_VARIABLE, check, load_sweep

# Whole numbers and yes or no that only these launchers take.
NUMBERS = {"seconds_to_save": "slurm, kubernetes", "max_restarts": "kubernetes", "spot": "kubernetes, skypilot"}
TAKERS = {name: takers for name, (takers, *_) in TEXTS.items()} | NUMBERS
USAGE = f"{'|'.join(TEMPLATES)} [--flag=value ...] -- COMMAND [-- evaluate|sweep ...]"


@flags.command(
    flags.arguments(USAGE, "the scheduler, and the train, sweep or tokenize command to run"),
    flags.string("output", None, "file to write (default: standard output)"),
    *(flags.string(name, None, f"{takers}: {meaning}") for name, (takers, meaning, _) in TEXTS.items()),
    flags.integer("nodes", 1, "machines of a run", lower_bound=1),
    flags.integer("gpus_per_node", None, "GPUs of each machine; 0: CPU", lower_bound=0),
    flags.integer("cpus", None, "CPU cores of each SLURM task, pod or node", lower_bound=1),
    flags.integer("seconds_to_save", 120, "slurm, kubernetes: seconds for a run to save at its end", lower_bound=1),
    flags.integer("max_restarts", 10, "kubernetes: maximum number of restarts", lower_bound=0),
    flags.integer("tokenize_shards", None, "CPU jobs that tokenize, alone or before train", lower_bound=2),
    flags.boolean("spot", False, "kubernetes, skypilot: machines that may be preempted"),
)
def launch(values: flags.Values) -> int:
    r"""Write a job that runs, sweeps or tokenizes on SLURM, Kubernetes or SkyPilot.

    Examples:
        transformer-jax launch slurm --nodes=4 --gpus_per_node=8 --cpus=12 --time=24:00:00 \
            --output=run.sbatch -- train --config=multi30k:tiny \
            --config.batching.row_multiple=32 --workdir=/shared/runs/base
        transformer-jax launch kubernetes --tpu=v5e:2x4 --cpus=24 --memory=96Gi \
            --image=REGISTRY/IMAGE --volume_claim=runs \
            -- sweep --sweep=sweep.py --workdir=/shared/sweep --workers=16

    After -- comes the command for one machine: train, sweep or tokenize. With --tokenize_shards=64
    and a data.store, jobs on CPUs tokenize before the run begins. A second -- and evaluate or sweep
    add a job on one device after the run. Settings, mesh and batch are checked here. Data are read
    on the cluster, where relative paths start in the working directory. A run that is stopped
    saves, and resumes when it is restarted. A ConfigMap of Kubernetes or file_mounts of SkyPilot
    take files of --plugin along. SLURM reads them on the shared disk. See docs/clusters.md.
    """
    launcher, *command = values.arguments or [""]
    if launcher not in TEMPLATES:
        raise ConfigError(f"{launcher!r} is not a launcher", remedy=f"launchers are {', '.join(TEMPLATES)}")
    for flag, takers in TAKERS.items():
        if flag in values.present and launcher not in takers:
            raise ConfigError(f"--{flag}", f"is a flag for {takers}, not for {launcher}")
    first, *others = [list(words) for is_end, words in itertools.groupby(command, "--".__eq__) if not is_end] or [[""]]
    jobs = _jobs(first, values.tokenize_shards)
    main = jobs[-1]
    if others and main.kind != "run":
        raise ConfigError("--", f"a second command follows train, not {first[0]}", "launch it by itself")
    for other in others:
        jobs.append(_follower(other, main))
        if jobs[-1].kind in [job.kind for job in jobs[:-1]]:
            raise ConfigError("--", f"{jobs[-1].kind!r} is there twice", "launch one of them by itself")
    fields = dict(vars(values))
    if main.kind in TOKENIZING:
        for flag in ("nodes", "gpus_per_node", "gpu_type", "tpu"):
            if flag in values.present and getattr(values, flag) != 0:
                raise ConfigError(
                    f"--{flag}", "each shard of tokenize takes CPUs of one machine (--cpus)", "leave it out"
                )
        fields["gpus_per_node"] = 0
    fields |= {"name": values.name or job_name(main.workdir), "mount_path": values.mount_path or "/shared"}
    content = job_file(launcher, fields, jobs)
    if values.output is None:
        print(content, end="")
        return 0
    write_whole(Path(values.output).expanduser(), content)
    starts = {"slurm": "bash" if jobs[1:] else "sbatch", "kubernetes": "kubectl apply --filename"}
    start = starts.get(launcher, "sky jobs launch")
    print(f"written; start it with: {start} {shlex.quote(values.output)}", file=sys.stderr)
    return 0


def _jobs(command: list[str], shards: int | None) -> list[Job]:
    """Check a ``train``, ``sweep`` or ``tokenize`` command, and return its jobs."""
    name, *arguments = command
    if name == "train":
        values = flags.parse(train.flags, arguments)
        words, recipe = [name, *values.as_arguments()], flags.required_config(values)
        add_flags_to_overrides(values)
        overrides = flags.overrides_of(values)
        from transformer_jax.tools.sizing.sizes import require_stated_tokens, settings_and_budget

        config, budget = settings_and_budget(recipe, overrides, values.budget)
        config.check_new_run()
        cache = _shared_cache(values.workdir, config)
        run = Job("run", [*words, *cache], values.workdir, configs=[config], budget=budget)
        if shards is None:
            return [run]
        if not config.data.store:
            raise ConfigError(
                "data.store", "is missing", "set the store that --tokenize_shards writes, such as /shared/tokens"
            )
        require_stated_tokens(recipe, overrides, values.budget, "--tokenize_shards")
        kept = [f"--config.{key}={text}" for key, text in overrides if key != "data.store"]
        words = [f"--config={recipe}", *(f"--plugin={file}" for file in values.plugin), *kept, *cache]
        jobs = _jobs(["tokenize", *words, f"--output={config.data.store}"], shards)
        return [*jobs, run._replace(after=jobs[-1].kind)]
    if name == "tokenize":
        values = flags.parse(tokenize.flags, arguments)
        config, store = checked_config(values), values.output
        config.check_new_run()
        if not (store.startswith(("~/", "/")) or is_address(store)):
            raise ConfigError("--output", f"{store!r} must be an absolute path or an address, such as /shared/tokens")
        if values.shard is not None or shards is None:
            raise ConfigError(
                "--shard", "each job gets its own", "write --tokenize_shards=64 before --, and no --shard"
            )
        words = [name, *values.as_arguments(), *_shared_cache(store, config)]
        # The first shard alone trains the tokenizers.
        first = Job("tokenizers", [*words, f"--shard=0/{shards}"], store)
        return [first, Job("tokens", words, store, first.kind, shards)]
    if shards is not None:
        raise ConfigError(
            "--tokenize_shards", f"is for train and tokenize, not for {name!r}", "sweeps read a whole store"
        )
    if name == "sweep":
        return [_sweep(arguments, "workers", None)]
    raise ConfigError(f"{name!r} cannot be launched", remedy="write train, sweep or tokenize with its flags after --")


def _follower(command: list[str], run: Job) -> Job:
    name, *arguments = command
    if name == "sweep":
        return _sweep(arguments, "sweep", run.kind)
    if name != "evaluate":
        raise ConfigError(
            f"{name!r} cannot follow a run", remedy="write evaluate or sweep with its flags after the second --"
        )
    values = flags.parse(evaluate.flags, arguments)
    if values.workdir != run.workdir:
        raise ConfigError("evaluate", f"--workdir={values.workdir} is another run", f"write --workdir={run.workdir}")
    used_settings(run.configs[0], flags.overrides_of(values))
    return Job("evaluate", [name, *values.as_arguments()], run.workdir, run.kind)


def _sweep(arguments: list[str], kind: str, after: str | None) -> Job:
    values = flags.parse(sweep.flags, arguments)
    workdir, workers = values.workdir, max(values.workers, 1)
    if values.retry_failed:
        raise ConfigError("--retry_failed", "every worker would retry them", "run sweep with it first, then launch")
    if is_address(workdir) and not os.environ.get(STORAGE_VARIABLE):
        raise ConfigError("--workdir", f"{workdir}: a store cannot hold the study", f"set {STORAGE_VARIABLE}")
    if workers > 1 and not (is_address(workdir) or workdir.startswith(("~/", "/"))):
        raise ConfigError("--workdir", f"{workdir!r} is not absolute", "all workers must see it")
    loaded = load_sweep(values.sweep, flags.overrides_of(values), values.rows)
    words = ["sweep", f"--sweep={values.sweep}", f"--workdir={workdir}"]
    words += [f"--{flag}={getattr(values, flag)}" for flag in ("study", "grace_seconds") if flag in values.present]
    words += [*flags_of_trials(values), *_shared_cache(workdir, loaded.settings(loaded.points()[0])), "--workers=1"]
    return Job(kind, words, workdir, after, workers, tuple(check(loaded)))


def _shared_cache(workdir: str, config: ExperimentConfig) -> list[str]:
    """Return the flag for a cache that all machines share, unless the settings have one."""
    folder, default = beside(workdir, "cache"), getattr(type(config.data), "cache_directory", None)
    is_open = folder and default is not None and config.data.cache_directory == default
    return [f"--config.data.cache_directory={folder}"] if is_open else []
