import itertools
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.commands import flags
from transformer_jax.commands.evaluate import evaluate, require_watchable
from transformer_jax.commands.sweep import flags_of_trials, sweep
from transformer_jax.commands.tokenize import checked_config, tokenize
from transformer_jax.commands.train import add_flags_to_overrides, train
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import is_address
from transformer_jax.config.recipes import used_settings
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.launching import (
    Evaluation,
    Sweep,
    Tokenizing,
    Training,
    Workload,
    beside,
    is_absolute,
    logs_of,
    name_of_workdir,
    needs_cache,
)
from transformer_jax.tools.launching.kubernetes import KubernetesSettings, kubernetes_manifest
from transformer_jax.tools.launching.skypilot import SkyPilotSettings, sky_task
from transformer_jax.tools.launching.slurm import SlurmSettings, slurm_script
from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE, check, load_sweep

# Flags of sweep that are passed to its workers.
SWEEP_FLAGS = "study", "grace_seconds"


class Launcher(NamedTuple):
    """A scheduler: its settings, whose fields are its flags; a function that writes a job; the command that starts it."""

    settings: type[Any]
    written: Callable[[Any, Workload], str]
    start: str

    @property
    def flags(self) -> set[str]:
        return {field.name for field in fields(self.settings)}


LAUNCHERS = {
    "slurm": Launcher(SlurmSettings, slurm_script, "mkdir -p {logs} && sbatch"),
    "kubernetes": Launcher(KubernetesSettings, kubernetes_manifest, "kubectl apply --filename"),
    "skypilot": Launcher(SkyPilotSettings, sky_task, "sky jobs launch"),
}
USAGE = f"{'|'.join(LAUNCHERS)} [--flag=value ...] -- COMMAND [-- evaluate|sweep ...]"


@flags.command(
    flags.arguments(USAGE, "the scheduler, and the train, sweep or tokenize command to run"),
    flags.string("output", None, "file to write (default: standard output)"),
    flags.string("name", None, "name of the job (default: from --workdir, or --output of tokenize)"),
    flags.string("time", None, "slurm: limit, HH:MM:SS or D-HH:MM:SS; shortly before it the run saves and is requeued"),
    *(flags.string(name, None, "slurm: passed to sbatch") for name in ("partition", "account", "qos", "constraint")),
    flags.string("memory", None, "slurm, kubernetes: of each node or pod, such as 64G"),
    flags.string("setup", None, "slurm, skypilot: shell commands to run first, such as 'source venv/bin/activate'"),
    flags.string("tpu", None, "kubernetes: KIND:TOPOLOGY, such as v5e:4x4, v5p:2x2x4, v6e:2x4"),
    flags.string("image", None, "kubernetes, skypilot: a container image with transformer-jax in it"),
    flags.string("namespace", None, "kubernetes: namespace"),
    flags.string("queue", None, "kubernetes: local queue of Kueue that starts the job"),
    flags.string("secret", None, "kubernetes: a Secret with environment variables, such as WANDB_API_KEY"),
    flags.string(
        "volume_claim", None, "kubernetes: claim of the shared disk; skypilot: volume; not needed at gs:// or s3://"
    ),
    flags.string("gpu_type", None, "kubernetes: gke-accelerator, such as nvidia-h100-80gb; skypilot: such as H100"),
    flags.string("mount_path", "/shared", "kubernetes, skypilot: mount point of the shared disk in pods and nodes"),
    flags.integer("nodes", 1, "machines of a run", lower_bound=1),
    flags.integer("gpus_per_node", None, "GPUs of each machine; 0: CPU", lower_bound=0),
    flags.integer("cpus", None, "CPU cores of each SLURM task, pod or node", lower_bound=1),
    flags.integer("seconds_to_save", 120, "slurm, kubernetes: seconds for a run to save at its end", lower_bound=1),
    flags.integer("max_restarts", 10, "kubernetes: maximum number of restarts", lower_bound=0),
    flags.integer(
        "tokenize_shards", None, "CPU jobs that tokenize, alone or before train into data.store", lower_bound=2
    ),
    flags.boolean("spot", False, "kubernetes, skypilot: machines that may be preempted"),
)
def launch(values: flags.Values) -> int:
    r"""Write a job that runs, sweeps or tokenizes on a cluster: an sbatch script, a Kubernetes manifest, or a SkyPilot task.

    Examples:
        transformer-jax launch slurm --nodes=4 --gpus_per_node=8 --cpus=12 --time=24:00:00 --output=run.sbatch \
            -- train --config=multi30k:tiny --config.batching.row_multiple=32 --workdir=/shared/runs/base
        transformer-jax launch slurm --gpus_per_node=1 --cpus=12 --time=12:00:00 \
            -- sweep --sweep=sweep.py --workdir=/shared/sweep --workers=16
        transformer-jax launch kubernetes --tpu=v5e:4x4 --cpus=24 --memory=96Gi --image=REGISTRY/IMAGE --volume_claim=runs \
            -- train --config=multi30k:tiny --config.batching.row_multiple=16 --workdir=/shared/runs/base
        transformer-jax launch skypilot --gpu_type=H100 --gpus_per_node=8 --nodes=2 --spot --volume_claim=runs --image=IMAGE \
            -- train --config=multi30k:tiny --config.batching.row_multiple=16 --workdir=/shared/runs/base
        transformer-jax launch slurm --cpus=4 --partition=cpu --tokenize_shards=64 \
            -- tokenize --config=transformer_base --output=/shared/tokens

    With --tokenize_shards=64 and --config.data.store=/shared/tokens (or s3://, gs://), 64 jobs on CPUs tokenize the text before
    the run begins; with `-- tokenize` no run follows. A second -- and `evaluate --watch --workdir=...` add a job on one device
    that scores checkpoints beside the run; `evaluate` without --watch, and `sweep`, begin after the run has succeeded.

    After -- comes the command for one machine; --distributed is added if there are several processes, and each worker of a
    sweep gets its own job, pod or node. Settings, mesh and batch are checked before anything is queued. Recipes, sweeps and
    data are read on the machines of the cluster; relative paths start in the working directory there. A run that is stopped
    saves, and resumes when SLURM or Kubernetes restarts it. TRANSFORMER_JAX_SWEEP_STORAGE names the database of a study, here
    and for the workers. docs/clusters.md explains each file.
    """
    name, *command = values.arguments or [""]
    if name not in LAUNCHERS:
        raise ConfigError(f"{name!r} is not a launcher; launchers are {', '.join(LAUNCHERS)}")
    launcher = LAUNCHERS[name]
    for flag in sorted(set().union(*(other.flags for other in LAUNCHERS.values())) - launcher.flags):
        if values[flag].present:
            others = " and ".join(other for other, each in LAUNCHERS.items() if flag in each.flags)
            raise ConfigError(f"--{flag}: is a flag for {others}, not for {name}")
    command, *followers = _split(command)
    workload = workload_of(command, values.tokenize_shards)
    if followers:
        if not isinstance(workload, Training):
            raise ConfigError(f"--: a second command follows train, not {command[0]}; launch it by itself")
        workload = replace(workload, followers=tuple(_follower(each, workload) for each in followers))
        kinds = [each.kind for each in workload.followers]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"--: {max(kinds, key=kinds.count)!r} is there twice; launch one of them by itself")
    settings = {flag: values[flag].value for flag in launcher.flags}
    if isinstance(workload, Tokenizing):
        for flag in ("nodes", "gpus_per_node", "gpu_type", "tpu"):
            if values[flag].present and values[flag].value != 0:
                raise ConfigError(f"--{flag}: each shard of tokenize takes CPUs of one machine (--cpus); leave it out")
        settings["gpus_per_node"] = 0
    if settings["name"] is None:
        settings["name"] = name_of_workdir(workload.workdir)
    content = launcher.written(launcher.settings(**settings), workload)
    if values.output is None:
        print(content, end="")
        return 0
    write_whole(Path(values.output).expanduser(), content)
    start = launcher.start.format(logs=logs_of(workload.workdir))
    if content.startswith("#!") and (values.tokenize_shards or followers):
        start = "bash"
    print(f"written; start it with: {start} {shlex.quote(values.output)}", file=sys.stderr)
    return 0


def _split(words: list[str]) -> list[list[str]]:
    """The commands between ``--``."""
    return [list(words) for is_end, words in itertools.groupby(words, "--".__eq__) if not is_end] or [[]]


def _follower(command: list[str], training: Training) -> Sweep | Evaluation:
    (name, *arguments), workdir = command, training.workdir
    if name == "evaluate":
        values = flags.parse(evaluate.flags, arguments)
        if values.workdir != workdir:
            raise ConfigError(f"evaluate: --workdir={values.workdir} is another run; write --workdir={workdir}")
        used_settings(training.config, flags.overrides_of(values))
        if values.watch:
            require_watchable(values)
        return Evaluation(tuple(command), workdir, values.watch)
    if name != "sweep":
        raise ConfigError(f"{name!r} cannot follow a run; write evaluate or sweep with its flags after the second --")
    found = workload_of(command)
    assert isinstance(found, Sweep)
    return found


def workload_of(command: list[str], shards: int | None = None) -> Workload:
    """The ``train``, ``sweep`` or ``tokenize`` command to launch, with its flags and settings checked.

    ``shards``: of ``tokenize``, or before ``train``. Adds a cache of tokenized corpora and compiled programs beside the run or
    the store, unless the settings state one. Raises ConfigError at another command, or wrong flags or settings.
    """
    name, *arguments = command or [""]
    if name == "train":
        values = flags.parse(train.flags, arguments)
        add_flags_to_overrides(values)
        config = flags.resolve_config(values)
        config.check_new_run()
        from transformer_jax.tasks.sizing import sizing_budget

        budget = sizing_budget(flags.required_config(values), flags.overrides_of(values), values.budget)
        if values.profile_steps is not None:
            # This imports JAX.
            from transformer_jax.runs.hooks import ProfiledSteps

            ProfiledSteps.parse(values.profile_steps)
        tokenizing = None if shards is None else _tokenizing(values, config, shards)
        arguments = [*command, *_shared_cache(values.workdir, config)]
        return Training(tuple(arguments), values.workdir, config, tokenizing, budget=budget)
    if name == "tokenize":
        values = flags.parse(tokenize.flags, arguments)
        config = checked_config(values)
        config.check_new_run()
        _require_for_all("--output", values.output)
        if values.shard is not None or shards is None:
            raise ConfigError("--shard: each job gets its own; write --tokenize_shards=64 before --, and no --shard")
        return Tokenizing((*arguments, *_shared_cache(values.output, config)), shards, values.output)
    if shards is not None:
        raise ConfigError(
            f"--tokenize_shards: is for train and tokenize, not for {name!r}; sweeps read a finished store"
        )
    if name == "sweep":
        values = flags.parse(sweep.flags, arguments)
        if values.retry_failed:
            raise ConfigError("--retry_failed: every worker would retry them; run sweep with it first, then launch")
        stated = load_sweep(values.sweep, flags.overrides_of(values), values.rows)
        more = tuple(f"--{flag}={values[flag].value}" for flag in SWEEP_FLAGS if values[flag].present)
        more += (*flags_of_trials(values), *_shared_cache(values.workdir, stated.settings(stated.points()[0])))
        has_database = bool(os.environ.get(STORAGE_VARIABLE))
        return Sweep(
            values.sweep, values.workdir, max(values.workers, 1), more, has_database, configs=tuple(check(stated))
        )
    raise ConfigError(f"{name!r} cannot be launched; write train, sweep or tokenize with its flags after --")


def _tokenizing(values: flags.Values, config: ExperimentConfig, shards: int) -> Tokenizing:
    store = config.data.store
    _require_for_all("data.store", store)
    from transformer_jax.tasks.sizing import require_stated_tokens

    if config.init.run and config.init.tokenizer == "adopt":
        problem = "training adopts the tokenizers of --init_from, and a store has its own"
        raise ConfigError(f"--tokenize_shards: {problem}; set --config.init.tokenizer=new")
    require_stated_tokens(flags.required_config(values), flags.overrides_of(values), values.budget, "--tokenize_shards")
    kept = [f"--config.{key}={text}" for key, text in flags.overrides_of(values) if key != "data.store"]
    plugins = [f"--plugin={file}" for file in values.plugin]
    recipe = f"--config={flags.required_config(values)}"
    cache = _shared_cache(values.workdir, config)
    return Tokenizing((recipe, *plugins, *kept, f"--output={store}", *cache), shards, store)


def _require_for_all(key: str, store: str) -> None:
    """Raises ConfigError, which names ``key``, unless all machines would write the same store."""
    if not (is_absolute(store) or is_address(store)):
        raise ConfigError(f"{key}: {store!r} is no absolute path or address, such as /shared/tokens, to write to")


def _shared_cache(workdir: str, config: ExperimentConfig) -> list[str]:
    """The flag for a cache that all machines share, unless the settings state a folder."""
    folder = beside(workdir, "cache")
    return [f"--config.data.cache_directory={folder}"] if folder and needs_cache(config) else []
