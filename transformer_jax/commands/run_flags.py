"""Flags and settings of every command that uses a trained model."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_jax.commands import flags
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config, on_any_devices
from transformer_jax.config.mixture import tagging_command
from transformer_jax.config.run_settings import used_settings
from transformer_jax.config.tasks import require_use
from transformer_jax.files.atomic_files import require_writable
from transformer_jax.files.paths import is_address
from transformer_jax.registry.index import behind
from transformer_jax.registry.python_files import plugin_flags
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.run_directory.selection import chosen_step
from transformer_jax.runtime.startup import program_name

if TYPE_CHECKING:
    from transformer_jax.tasks.trained_run import TrainedRun

CHECKPOINT_MEANING = "best (by the metric of the task, on the validation split), last, or the number of an update"


def run_flags(parser: flags.Parser) -> None:
    """Define ``--workdir``, ``--checkpoint``, ``--average``, and settings for using a run."""
    flags.string("workdir", None, "folder of the run", required=True)(parser)
    flags.string("checkpoint", "best", CHECKPOINT_MEANING)(parser)
    flags.integer("average", 1, "number of checkpoints whose parameters are averaged", lower_bound=1)(parser)
    flags.overrides(parser)


ensemble_flag = flags.strings(
    "ensemble",
    [],
    "RUN[:CHECKPOINT],...: average the probabilities of --workdir and of these at every step; --average applies to "
    "all, --checkpoint to RUNs without :CHECKPOINT",
)


def run_config(values: flags.Values, use: str = "", *, workdir: str | None = None) -> ExperimentConfig:
    """Return the settings of the run of --workdir (or ``workdir``) with overrides by flags.

    Raises ConfigError when there is no such run, its task does not serve ``use``
    (``TaskSettings.uses``), or an override does not fit its model.
    """
    workdir = workdir or values.workdir
    return used_settings(settings_of_run(workdir, use), flags.overrides_of(values))


def settings_of_run(workdir: str, use: str) -> ExperimentConfig:
    """Return the settings of a run. Raises ConfigError unless its task serves ``use``, if any."""
    RunDirectory(workdir).require_run()
    config = load_run_config(workdir)
    if use:
        require_use(config.task, use, f"--workdir: {workdir} is a run of task={config.task}; this command")
    return config


def chosen_runs(values: flags.Values, config: ExperimentConfig) -> list[ChosenRun]:
    """Return the run of --workdir with ``config``, and the runs of --ensemble.

    These get the same devices and decoding settings. Raises ConfigError when one is not a run, is
    of another task, or cannot have these decoding settings, and CheckpointError when --workdir has
    no such checkpoint.
    """
    chosen_step(RunDirectory(values.workdir), values.checkpoint, tells=False)
    runs = [ChosenRun(values.workdir, config, values.checkpoint)]
    for text in values.ensemble if "ensemble" in values else ():
        folder, checkpoint = split_checkpoint(text, "--ensemble")
        RunDirectory(folder).require_run("--ensemble")
        other = on_any_devices(load_run_config(folder))
        if other.task != config.task:
            problem = f"{folder} is a run of task={other.task}, {values.workdir} of task={config.task}"
            raise ConfigError("--ensemble", problem)
        try:
            other = replace(other, decoding=config.decoding, mesh=config.mesh)
        except ConfigError as error:
            raise ConfigError("--ensemble", f"{folder}: {error}") from None
        runs.append(ChosenRun(folder, other, checkpoint or values.checkpoint))
    return runs


def open_runs(runs: list[ChosenRun], average: int, *, only_decodes: bool = False) -> "TrainedRun[Any]":
    """Call ``open_trained``, imported on use since it imports JAX."""
    from transformer_jax.tasks.trained_run import open_trained

    return open_trained(*runs, average=average, only_decodes=only_decodes)


def commands_to_try(
    config: ExperimentConfig, workdir: str | Path, ensemble: Sequence[str] = (), evaluated: str = ""
) -> list[str]:
    """Return commands to try with a trained run: first its evaluation on ``evaluated``, if any."""
    from transformer_jax.tasks.task import task_class

    together = f" --ensemble={shlex.quote(','.join(ensemble))}" if ensemble else ""
    run, lines = f"--workdir={shlex.quote(str(workdir))}{plugin_flags()}{together}", "input.txt"
    if tags := getattr(config.data, "required_tags", ()):
        lines = f"<({tagging_command(tags[0])} input.txt)"
    listed = [*task_class(config.task).commands]
    for steps in behind("next_steps").values() if not ensemble else ():
        listed += steps(config)
    evaluation = [f"evaluate {run} --split={evaluated}"] if evaluated else []
    commands = [*evaluation, *(command.format(run=run, input=lines) for command in listed)]
    return [f"{program_name()} {command}" for command in commands]


def split_to_try(config: ExperimentConfig) -> str:
    """Return ``test`` if the run has such a split, else ``validation``."""
    from transformer_jax.tasks.task import task_class

    try:
        if config.data.source != "tfds":
            task_class(config.task).require_split(config, "test")
    except DataError:
        return "validation"
    return "test"


def output_path(values: flags.Values, default: str) -> Path:
    """Return --output, or ``default`` in the run directory. Raises ConfigError if unwritable."""
    path = Path(values.output).expanduser() if values.output else RunDirectory(values.workdir).path / default
    require_writable(path.parent, "--output" if values.output else "--workdir")
    return path


def require_attention(config: ExperimentConfig, kind: str, layer: int, head: int) -> None:
    """Raise ConfigError unless the model has attention of this kind, layer and head, from 1.

    A layer or head of 0 or less stands for any.
    """
    layers, heads = config.model.attention_layers.get(kind, ([], 0))
    if not layers:
        raise ConfigError("--workdir", f"this model has no attention of kind {kind}")
    if layer > 0 and layer not in layers:
        numbers = ", ".join(map(str, layers))
        raise ConfigError("--layer", f"layer {layer} has no attention of kind {kind}", f"layers with it: {numbers}")
    if head > heads:
        raise ConfigError("--head", f"{head} is more than the {heads} heads of a layer")


def split_checkpoint(text: str, flag: str) -> tuple[str, str | None]:
    """Return ``("runs/a", "last")`` for ``runs/a:last`` and ``("runs/a", None)`` for ``runs/a``.

    A folder may have a name with a colon. Raises ConfigError, which names ``flag``, when the run is
    empty or the checkpoint impossible.
    """
    is_whole = ":" not in text.rpartition("/")[2] or (not is_address(text) and Path(text).expanduser().is_dir())
    run, checkpoint = (text, None) if is_whole else text.rpartition(":")[::2]
    if not run.strip():
        raise ConfigError(flag, "the name of a run is empty", "write RUN or RUN:CHECKPOINT")
    if checkpoint is not None and checkpoint not in ("best", "last") and not checkpoint.isdigit():
        problem = f"{checkpoint!r} is not a checkpoint: best, last or the number of an update"
        raise ConfigError(flag, f"{text}: there is no such folder, and {problem}")
    return run, checkpoint
