"""The tokenizers that a run begins with: stored, adopted, shared, cached or trained."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from transformer_jax.config import ConfigError, ExperimentConfig, load_run_config
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.data.stores import open_or_build, shared_tokenizers
from transformer_jax.data.tokenizers import TokenizerPair, load_tokenizers, save_tokenizers
from transformer_jax.registry.python_files import loaded_plugins
from transformer_jax.run_directory.layout import RunDirectory, require_run_to_start_from
from transformer_jax.tasks.run_tokenizers import of_first, stored_tokenizers

if TYPE_CHECKING:
    from transformer_jax.tasks.task import Task


def tokenizers_for_training(config: ExperimentConfig, run: RunDirectory, task: "type[Task]") -> TokenizerPair:
    """Return the tokenizers of a run with checkpoints, or those that a new run begins with.

    Tokenizers in a folder without checkpoints are ignored: they may be of other settings or data.
    Process 0 finds or trains them for all. Raises ConfigError if the settings differ from the
    tokenizers of ``init.run``.
    """

    def find_or_train() -> TokenizerPair:
        if run.has_checkpoints():
            return stored_tokenizers(run)
        if config.init.run and config.init.tokenizer == "adopt":
            return _adopted_tokenizers(config)
        return cached_tokenizers(config, task)

    return of_first(find_or_train)


def cached_tokenizers(config: ExperimentConfig, task: "type[Task]") -> TokenizerPair:
    """Return tokenizers of the training split, cached for the same text and settings.

    With ``data.store`` the ones in the store, or ConfigError if it has tokenizers of other
    settings.
    """
    if config.data.store:
        return shared_tokenizers(config.data.store, asdict(config.tokenizer), "data.store")
    data = asdict(config.data) | {"cache_directory": ""}
    # Shares of an epoch do not change them; tags are in the digest of the text.
    for name in ("store", "weights", "temperature", "tags"):
        data.pop(name, None)
    text = task.open_source(config).fingerprint(config.data.train_split)
    settings = json.dumps([data, asdict(config.tokenizer), config.data_seed], sort_keys=True)
    name = digest([config.task, text, settings, *loaded_plugins().values()])[:32]
    return open_or_build(
        config.data.cache_directory,
        f"tokenizers/{name}",
        load_tokenizers,
        lambda folder: save_tokenizers(task.new_tokenizers(config), folder),
    )


def _adopted_tokenizers(config: ExperimentConfig) -> TokenizerPair:
    """Return the tokenizers of ``init.run``, or raise ConfigError if the settings name others."""
    require_run_to_start_from(config.init.run)
    source = RunDirectory(config.init.run)
    theirs = load_run_config(source.path).tokenizer
    for name in ("kind", "vocabulary_size", "joint"):
        before, now = getattr(theirs, name), getattr(config.tokenizer, name)
        if before != now:
            problem = f"{now!r}, but the tokenizers are adopted from {config.init.run}, where it is {before!r}"
            remedy = f"use --config.tokenizer.{name}={before}, or --config.init.tokenizer=new"
            raise ConfigError(f"tokenizer.{name}", problem, remedy)
    return stored_tokenizers(source)
