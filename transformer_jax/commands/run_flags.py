"""Flags and settings of every command that uses a trained model."""

from dataclasses import replace
from pathlib import Path

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

CHECKPOINT_MEANING = "best (validation BLEU), last, or the number of an update"


def define_run_flags(values: flags.FlagValues) -> None:
    """The flags of every command that uses a trained model."""
    flags.DEFINE_string("workdir", None, "folder of the run", flag_values=values, required=True)
    flags.DEFINE_string("checkpoint", "best", CHECKPOINT_MEANING, flag_values=values)
    flags.DEFINE_integer(
        "average", 1, "average the parameters of so many checkpoints", flag_values=values, lower_bound=1
    )
    define_override_flag(values)


def run_config(values: flags.FlagValues) -> ExperimentConfig:
    """The settings of the run with the overrides of the command line, on the devices that are here, not those of its training.

    Raises ConfigError when an override is not one of decoding, of devices or of where the data lies.
    """
    from transformer_jax.run_directory import RunDirectory

    RunDirectory(values.workdir).require_run()
    saved = _on_any_devices(load_run_config(values.workdir))
    config = resolve_config(values, base=saved)
    for key, before, _ in difference(saved, config):
        if not key.startswith(("decoding.", "mesh.", "data.directory", "data.cache_directory")):
            raise ConfigError(
                f"--config.{key}: the trained model has {before!r}; only decoding, mesh, data.directory and "
                "data.cache_directory can change"
            )
    return config


def split_checkpoint(text: str) -> tuple[str, str]:
    """``runs/a:last`` is ``("runs/a", "last")``; the best checkpoint where none is stated."""
    run, colon, checkpoint = text.rpartition(":")
    return (run, checkpoint) if colon and not Path(text).expanduser().is_dir() else (text, "best")


def _on_any_devices(config: ExperimentConfig) -> ExperimentConfig:
    model = config.model
    if isinstance(model, TransformerConfig):
        model = replace(model, attention_backend="auto")
    return replace(config, mesh=MeshConfig(), model=model)
