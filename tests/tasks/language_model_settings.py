"""Settings of a language model that trains in seconds, and a run directory without training."""

from pathlib import Path

from run_steps import write_untrained

from transformer_jax.config import ExperimentConfig, from_dict


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
    """A run directory in ``folder`` with a checkpoint of the initial parameters."""
    return str(write_untrained(language_model_config(folder / "cache", **blocks), folder / "run"))
