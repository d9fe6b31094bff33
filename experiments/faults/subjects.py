"""The runs that are disturbed: a Transformer, a recurrent model and a language model of a few thousand parameters."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 24
SHARED = {
    "optimizer": {"schedule": "constant", "learning_rate": 1e-2, "warmup_updates": 4},
    "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
}
TRAINING = {
    "num_updates": UPDATES,
    "evaluate_every": 12,
    "checkpoint_every": 4,
    "log_every": 1,
    "validation_sentences": 8,
}
COPY = {
    "data": {"source": "copy", "generated_pairs": 200, "max_source_tokens": 47, "max_target_tokens": 47},
    "tokenizer": {"kind": "word", "vocabulary_size": 64},
    "batching": {"tokens_per_update": 512, "num_buckets": 2},
    "decoding": {"beam_width": 2, "max_extra_tokens": 4},
    "training": TRAINING,
}
LAYERS = {"d_model": 16, "d_ff": 32, "num_heads": 2, "dropout": 0.1, "compute_dtype": "float32"}
SUBJECTS: dict[str, dict] = {
    "transformer": COPY | {"model": {"num_encoder_layers": 1, "num_decoder_layers": 1, **LAYERS}},
    "rnn": COPY
    | {"model": {"kind": "rnn", "d_embedding": 16, "d_hidden": 16, "d_attention": 16, "compute_dtype": "float32"}},
    "language_model": {
        "task": "language_model",
        "data": {"generated_sentences": 100},
        "tokenizer": {"kind": "byte"},
        "batching": {"tokens_per_update": 512, "context_length": 32},
        "model": {"num_layers": 1, "max_positions": 32, **LAYERS},
        "training": TRAINING,
        "decoding": {"max_new_tokens": 8},
    },
}


def write_recipe(subject: str, folder: Path) -> Path:
    """The recipe of a subject, with a cache beside it."""
    settings = SHARED | SUBJECTS[subject]
    settings = settings | {"data": settings["data"] | {"cache_directory": str(folder / "cache")}}
    recipe = folder / f"{subject}.py"
    recipe.write_text(f"def get_config():\n    return {settings!r}\n", encoding="utf-8")
    return recipe
