"""The tokenizers of a run, which are in its folder and in every checkpoint."""

import base64
import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import jax

from transformer_jax.checkpoints.format import CheckpointError
from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, load_run_config
from transformer_jax.config.plugins import loaded_plugins
from transformer_jax.data.cached_stores import open_or_build
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.data.shared_stores import shared_tokenizers
from transformer_jax.data.tokenizers import (
    TOKENIZER_FILES,
    TokenizerPair,
    load_tokenizers,
    save_tokenizers,
    tokenizer_files,
)
from transformer_jax.runs.run_directory import RunDirectory, local_run
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.distributed import from_first

if TYPE_CHECKING:
    from transformer_jax.tasks.task import Task


def tokenizers_for_training(config: ExperimentConfig, run: RunDirectory, task: "type[Task]") -> TokenizerPair:
    """The tokenizers of a run that has checkpoints; for a new run, from ``init.run``, the cache, or trained.

    Tokenizers in a folder without checkpoints are ignored: they may be of other settings or data. Process 0 finds or trains
    them for all. Raises ConfigError when the settings differ from the tokenizers of ``init.run``.
    """

    def find_or_train() -> TokenizerPair:
        if run.has_checkpoints():
            return _tokenizers_of_run(run)
        if config.init.run and config.init.tokenizer == "adopt":
            return _adopted_tokenizers(config)
        return new_tokenizers(config, task)

    return _of_first(find_or_train)


def new_tokenizers(config: ExperimentConfig, task: "type[Task]", output: str = "") -> TokenizerPair:
    """Tokenizers of the training split, from the cache if they were trained on the same text with the same settings.

    With ``data.store`` the ones in the store; with ``output`` the ones in that store, trained if it has none. Raises
    ConfigError where a store has tokenizers of other settings.
    """
    if output or config.data.store:
        # The seed chooses their sample: runs of other seeds share tokenizers, jobs that write a store do not.
        stated = asdict(config.tokenizer) | ({"data.seed": config.data_seed} if output else {})
        without_store = replace(config, data=replace(config.data, store=""))
        train = partial(new_tokenizers, without_store, task) if output else None
        key = "--output" if output else "data.store"
        return shared_tokenizers(output or config.data.store, stated, key, train)
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
    """The tokenizers of ``init.run``; raises ConfigError when the settings state others."""
    source = RunDirectory(local_run(config.init.run))
    source.require_run("init.run")
    theirs = load_run_config(source.path).tokenizer
    for name in ("kind", "vocabulary_size", "joint"):
        before, now = getattr(theirs, name), getattr(config.tokenizer, name)
        if before != now:
            problem = f"{now!r}, but the tokenizers are adopted from {config.init.run}, where it is {before!r}"
            remedy = f"use --config.tokenizer.{name}={before}, or --config.init.tokenizer=new"
            raise ConfigError(f"tokenizer.{name}: {problem}; {remedy}")
    return _tokenizers_of_run(source)


def tokenizers_of_run(run: RunDirectory) -> TokenizerPair:
    """The tokenizers of a run, restored from its newest checkpoint if they are missing or damaged.

    Raises DataError where no checkpoint has them.
    """
    return _of_first(lambda: _tokenizers_of_run(run))


def _of_first(find: Callable[[], TokenizerPair]) -> TokenizerPair:
    """Calls ``find`` on process 0 only and returns its result on all processes."""
    if jax.process_count() == 1:
        return find()
    saved = from_first(lambda: tokenizers_to_json(find()), "tokenizers")
    with TemporaryDirectory() as folder:
        return _unpacked(saved, Path(folder))


def _tokenizers_of_run(run: RunDirectory) -> TokenizerPair:
    try:
        return load_tokenizers(run.tokenizer)
    except DataError:
        if saved := _saved_tokenizers(run):
            return _unpacked(saved, run.tokenizer)
        raise


def tokenizers_to_json(tokenizers: TokenizerPair) -> dict[str, str]:
    """The tokenizer files in base 64, by name, for a checkpoint."""
    return {name: base64.b64encode(data).decode() for name, data in tokenizer_files(tokenizers).items()}


def _unpacked(saved: dict[str, str], folder: Path) -> TokenizerPair:
    """Writes tokenizer files into a folder and loads them; raises DataError at a name that is not of a tokenizer file."""
    if unknown := set(saved) - set(TOKENIZER_FILES):
        raise DataError(
            f"{folder}: a checkpoint names a tokenizer file {min(unknown)!r}; known are {', '.join(TOKENIZER_FILES)}"
        )
    if folder.is_symlink():
        raise DataError(f"{folder} is a link; tokenizers of a checkpoint are written into no other folder")
    for name, content in saved.items():
        write_whole(folder / name, base64.b64decode(content))
    return load_tokenizers(folder)


def _saved_tokenizers(run: RunDirectory) -> dict[str, str]:
    """Tokenizer files of the newest checkpoint that can be read, in base 64; empty where there is none."""
    if run.has_checkpoints():
        with closing(Checkpoints(run.checkpoints, read_only=True)) as checkpoints:
            for step in reversed(checkpoints.steps()):
                with suppress(CheckpointError):
                    return checkpoints.progress(step)["tokenizer"]
    return {}
