"""Flags and settings of every command that uses a trained model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.flag_parsing import define_override_flag, resolve_config
from transformer_jax.config import (
    ConfigError,
    ExperimentConfig,
    MeshConfig,
    TransformerConfig,
    difference,
    load_run_config,
)

if TYPE_CHECKING:
    from transformer_jax.run_directory import ChosenRun

CHECKPOINT_MEANING = "best (validation BLEU), last, or the number of an update"


def define_run_flags(values: flags.FlagValues) -> None:
    """The flags of every command that uses a trained model."""
    flags.DEFINE_string("workdir", None, "folder of the run", flag_values=values, required=True)
    flags.DEFINE_string("checkpoint", "best", CHECKPOINT_MEANING, flag_values=values)
    flags.DEFINE_integer(
        "average", 1, "average the parameters of so many checkpoints", flag_values=values, lower_bound=1
    )
    define_override_flag(values)


def define_ensemble_flag(values: flags.FlagValues) -> None:
    """Lets the command use several runs as one model."""
    meaning = (
        "RUN[:CHECKPOINT],...: average the probabilities of --workdir and of these at every step; --average is for each of "
        "them, --checkpoint for those that name none"
    )
    flags.DEFINE_list("ensemble", [], meaning, flag_values=values)


def run_config(values: flags.FlagValues, workdir: str | None = None) -> ExperimentConfig:
    """The settings of the run with the overrides of the command line, on the devices that are here, not those of its training.

    The run is that of ``--workdir``, or ``workdir`` where a command takes several.

    Raises ConfigError when an override is not one of decoding, of devices or of where the data lies.
    """
    from transformer_jax.run_directory import RunDirectory

    workdir = values.workdir if workdir is None else workdir
    RunDirectory(workdir).require_run()
    saved = _on_any_devices(load_run_config(workdir))
    config = resolve_config(values, base=saved)
    for key, before, _ in difference(saved, config):
        if not key.startswith(("decoding.", "mesh.", "data.directory", "data.cache_directory")):
            raise ConfigError(
                f"--config.{key}: the trained model has {before!r}; only decoding, mesh, data.directory and "
                "data.cache_directory can change"
            )
    return config


def chosen_runs(values: flags.FlagValues, config: ExperimentConfig) -> "list[ChosenRun]":
    """The run of --workdir, which has ``config``, and those of --ensemble, on the same devices and with the same search.

    Raises ConfigError when one of them is not a run, or cannot be searched with like the first.
    """
    from transformer_jax.run_directory import ChosenRun, RunDirectory

    chosen = [ChosenRun(values.workdir, config, values.checkpoint)]
    for text in values.ensemble:
        folder, _, checkpoint = text.rpartition(":")
        if not (folder and (checkpoint in ("best", "last") or checkpoint.isdigit())):
            folder, checkpoint = text, values.checkpoint
        if not folder:
            raise ConfigError("--ensemble: one of the runs is empty; write RUN[:CHECKPOINT],RUN[:CHECKPOINT]")
        RunDirectory(folder).require_run("--ensemble")
        own = _on_any_devices(load_run_config(folder))
        try:
            own = replace(own, decoding=config.decoding, mesh=config.mesh)
        except ConfigError as error:
            raise ConfigError(f"--ensemble: {folder}: {error}") from None
        chosen.append(ChosenRun(folder, own, checkpoint))
    return chosen


def split_checkpoint(text: str) -> tuple[str, str]:
    """``runs/a:last`` is ``("runs/a", "last")``; the best checkpoint where none is stated."""
    run, colon, checkpoint = text.rpartition(":")
    return (run, checkpoint) if colon and not Path(text).expanduser().is_dir() else (text, "best")


def _on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    model = config.model
    if isinstance(model, TransformerConfig):
        model = replace(model, attention_backend="auto")
    return replace(config, mesh=MeshConfig(), model=model)
