"""When does cross attention stay uniform? Normalization, initialization, rate, warm-up, depth and
batch.

    transformer-jax sweep --sweep=experiments/own_text/collapse.py --workdir=runs/collapse \\
        --config.data.train=multi30k/train.{en,fr}.gz --config.data.validation=multi30k/val.{en,fr}.gz

``validation/cross_attention_entropy`` of each trial is the lowest entropy of a head as a share of
ln n. The first rows see a million target tokens; the rows of two layers take as much time, and so
see more of them.
"""

from transformer_jax.tools.study.sweeps import Sweep

COMMON = {
    "tokenizer.vocabulary_size": 6000,
    "data.max_source_tokens": 99,
    "data.max_target_tokens": 99,
    "batching.num_buckets": 2,
    "model.num_encoder_layers": 4,
    "model.num_decoder_layers": 4,
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.dropout": 0.2,
    "optimizer.schedule": "cosine",
    "training.evaluate_every": 100,
    "training.checkpoint_every": 100,
    "training.keep_last": 20,
    "training.validation_sentences": 32,
}


def row(
    normalization: str, rate: float, warmup: int, layers: int = 4, tokens: int = 2048, updates: int = 500
) -> dict[str, object]:
    """The settings of a trial."""
    return {
        "model.normalization": normalization,
        "optimizer.learning_rate": rate,
        "optimizer.warmup_updates": warmup,
        "model.num_encoder_layers": layers,
        "model.num_decoder_layers": layers,
        "batching.tokens_per_update": tokens,
        "training.num_updates": updates,
    }


PACKED = {
    "batching.kind": "packed",
    "batching.count": "tokens",
    "batching.packed_length": 64,
    "batching.width_multiple": 8,
    "data.max_source_tokens": 63,
    "data.max_target_tokens": 63,
}
ROWS = {
    "post 2.5e-3 warm-up 50": row("post", 2.5e-3, 50),
    "post 2.5e-3 warm-up 200": row("post", 2.5e-3, 200),
    "post 1e-3 warm-up 50": row("post", 1e-3, 50),
    "post 1e-3 warm-up 200": row("post", 1e-3, 200),
    "post 4e-4 warm-up 50": row("post", 4e-4, 50),
    "post 2.5e-3 2 layers": row("post", 2.5e-3, 50, layers=2),
    "deepnorm 2.5e-3": row("deepnorm", 2.5e-3, 50) | {"model.initialization": "deepnorm"},
    "pre 2.5e-3": row("pre", 2.5e-3, 50),
    "pre 5e-3": row("pre", 5e-3, 50),
    "pre 2.5e-3 2 layers": row("pre", 2.5e-3, 50, layers=2, updates=850),
    "pre 2.5e-3 1024 tokens": row("pre", 2.5e-3, 100, tokens=1024, updates=1000),
    "pre 4e-3 1024 tokens": row("pre", 4e-3, 100, tokens=1024, updates=1000),
    "pre 2.5e-3 2 layers packed": row("pre", 2.5e-3, 170, layers=2, tokens=768, updates=1700) | PACKED,
    "pre 2.5e-3 2 layers packed dropout 0.1": row("pre", 2.5e-3, 170, layers=2, tokens=768, updates=1700)
    | PACKED
    | {"model.dropout": 0.1},
}


def get_sweep() -> Sweep:
    """One seed of each."""
    return Sweep(config="text", overrides=COMMON, rows=ROWS)
