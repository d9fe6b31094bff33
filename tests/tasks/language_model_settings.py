"""Settings of a language model that trains in seconds, and a run directory without training."""

import json
from contextlib import closing
from pathlib import Path

import jax

from transformer_jax.checkpoints.manager import Checkpoints
from transformer_jax.config import ExperimentConfig, from_dict, to_json
from transformer_jax.data.tokenizers import save_tokenizers
from transformer_jax.runs.run_directory import RunDirectory
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.training.sharding import make_mesh


def language_model_settings(cache: Path, **blocks: dict) -> dict:
    """Bytes of generated text for a model of a few thousand parameters, as nested dictionaries."""
    settings: dict = {
        "task": "language_model",
        "data": {"generated_sentences": 100, "cache_directory": str(cache)},
        "tokenizer": {"kind": "byte"},
        "batching": {"tokens_per_update": 512, "context_length": 32},
        "model": {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2, "max_positions": 32},
        "optimizer": {"schedule": "constant", "learning_rate": 1e-2, "warmup_updates": 4},
        "training": {"num_updates": 12, "label_smoothing": 0.1},
        "decoding": {"max_new_tokens": 8},
        "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
    }
    return settings | {name: settings.get(name, {}) | block for name, block in blocks.items()}


def language_model_config(cache: Path, **blocks: dict) -> ExperimentConfig:
    """The same, checked."""
    return from_dict(language_model_settings(cache, **blocks))


def untrained_run(folder: Path, **blocks: dict) -> str:
    """A run directory in ``folder`` whose only checkpoint, of update 7, has the parameters before the first update."""
    config = language_model_config(folder / "cache", **blocks)
    run = RunDirectory(folder / "run")
    run.path.mkdir(parents=True)
    run.config.write_text(json.dumps(to_json(config)))
    tokenizers = LanguageModelTask.new_tokenizers(config)
    save_tokenizers(tokenizers, run.tokenizer)
    task = LanguageModelTask(config, tokenizers, make_mesh(config.mesh, jax.devices()[:1]))
    with closing(Checkpoints(run.checkpoints)) as checkpoints:
        checkpoints.save_params(7, task.objective.init_params(jax.random.key(0)), {"data": {}})
        checkpoints.wait()
    return str(run.path)
