"""How does the loss fall with parameters and tokens? Runs to fit, and a larger one to predict.

    transformer-jax sweep --sweep=experiments/scaling/sweep.py:language_model --workdir=runs/scaling \\
        --config.data.train=enwiki.txt.xz
    python experiments/scaling/scaling_law.py runs/scaling/trials runs/scaling/law.png

    transformer-jax sweep --sweep=experiments/scaling/sweep.py:translation --workdir=runs/scaling_translation \\
        --config.data.directory=multi30k
    python experiments/scaling/scaling_law.py runs/scaling_translation/trials runs/scaling_translation/law.png

Twelve runs of four sizes and three durations each, and a thirteenth, larger and longer than all of
them. ``rates`` compares learning rates at four widths, with and without muP; rates.py draws them.
"""

from transformer_jax.tools.study.sweeps import Sweep

COMMON = {
    "model.compute_dtype": "auto",
    "optimizer.learning_rate": 3e-3,
    "optimizer.schedule": "cosine",
    "optimizer.clip_norm": 1.0,
    "training.checkpoint_every": 100_000,
    "training.evaluate_every": 100_000,
    "training.keep_last": 1,
}
LANGUAGE_MODEL = {
    "tokenizer.vocabulary_size": 1024,
    "batching.context_length": 128,
    "batching.tokens_per_update": 1024,
    "training.validation_sentences": 1000,
}
TRANSLATION = {
    "tokenizer.vocabulary_size": 2000,
    "model.normalization": "pre",
    "batching.tokens_per_update": 1024,
    "training.validation_sentences": 0,
    "training.label_smoothing": 0.0,
}

WIDTHS, RATES = (32, 64, 128, 256), (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
CONSTANT_RATE = {
    "model.num_layers": 2,
    "model.num_heads": 4,
    "model.tying": "none",
    "optimizer.name": "adam",
    "optimizer.weight_decay": 0.0,
    "optimizer.schedule": "constant",
    "optimizer.warmup_updates": 20,
    "training.num_updates": 200,
}


def language_model() -> Sweep:
    """66,000 to 960,000 parameters, 0.3 to 2.8 million tokens of Wikipedia; then two million
    parameters, 4.1 million tokens."""
    sizes = {"2x32": (2, 32), "2x64": (2, 64), "3x96": (3, 96), "4x128": (4, 128)}
    rows = {
        f"{name} x {updates}": decoder(*size, updates) for updates in (300, 900, 2700) for name, size in sizes.items()
    }
    return Sweep(
        config="language_model:enwiki",
        overrides=COMMON | LANGUAGE_MODEL,
        rows=rows | {"4x192 x 4000": decoder(4, 192, 4000)},
    )


def decoder(layers: int, width: int, updates: int) -> dict[str, object]:
    """The settings of a language model with heads of 32 components."""
    return duration(updates) | {
        "model.num_layers": layers,
        "model.d_model": width,
        "model.d_ff": 4 * width,
        "model.num_heads": max(width // 32, 1),
    }


def translation() -> Sweep:
    """110,000 to 900,000 parameters, 0.2 to 1.6 million target tokens; then 1.8 million parameters,
    2.4 million tokens."""
    rows = {
        f"{width} x {updates}": encoder_decoder(width, updates)
        for updates in (300, 900, 2400)
        for width in (32, 64, 96, 128)
    }
    return Sweep(
        config="multi30k:tiny_minutes",
        overrides=COMMON | TRANSLATION,
        rows=rows | {"192 x 3600": encoder_decoder(192, 3600)},
    )


def encoder_decoder(width: int, updates: int) -> dict[str, object]:
    """The settings of a Transformer of 2 + 2 layers with heads of 32 components."""
    return duration(updates) | {
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "model.d_model": width,
        "model.d_ff": 2 * width,
        "model.num_heads": width // 32,
    }


def duration(updates: int) -> dict[str, object]:
    """A tenth of the updates, at most 200, are warm-up."""
    return {"training.num_updates": updates, "optimizer.warmup_updates": min(updates // 10, 200)}


def rates() -> Sweep:
    """Language models of two layers with Adam and a constant rate, in the standard parametrization
    and in muP.

    muP has the base width 32, at which both are equal.
    """
    mup = {
        "model.initialization": "mup",
        "model.attention": "mup",
        "optimizer.name": "mup",
        "parts.mup.base_width": 32,
        "parts.mup.base_key_size": 8,
    }
    rows = {
        f"{name} {width} {rate:g}": {
            "model.d_model": width,
            "model.d_ff": 4 * width,
            "optimizer.learning_rate": rate,
        }
        | settings
        for name, settings in (("standard", {}), ("muP", mup))
        for width in WIDTHS
        for rate in RATES
    }
    return Sweep(config="language_model:enwiki", overrides=COMMON | LANGUAGE_MODEL | CONSTANT_RATE, rows=rows)


def get_sweep(variant: str = "language_model") -> Sweep:
    """The runs of ``language_model``, ``translation`` or ``rates``."""
    return {"language_model": language_model, "translation": translation, "rates": rates}[variant]()
