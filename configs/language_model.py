r"""Language models: a decoder-only Transformer on plain text, measured in bits per byte.

    transformer-jax train --config=language_model --config.data.train=book.txt --budget=20m \
        --workdir=runs/mine
    transformer-jax train --config=language_model:quick --workdir=runs/lm_quick
    transformer-jax train --config=language_model:enwiki --config.data.train=enwiki.txt.xz \
        --workdir=runs/lm_enwiki
    transformer-jax train --config=language_model:base --config.data.train=text.txt.xz \
        --workdir=runs/lm_base
    transformer-jax generate --workdir=runs/lm_quick --prompt="The old man"

``quick``: generated English paragraphs; 90 CPU seconds; 0.998 bits per byte of validation text.
``enwiki``: a text of 100 MB with a paragraph a line, the last 5 % held out; 3.4 million parameters,
4,000 updates, two thirds of an epoch; 33 CPU minutes, 27 minutes on two shared cores; 1.670 bits
per byte of the 5,041,739 held-out bytes. ``base``: the size of GPT-2 small (Radford et al. 2019;
124 million parameters) for one GPU or TPU of 40 GB and a few GB of text; not yet run. See
experiments/language_model.
"""

from ml_collections import ConfigDict

VARIANTS = ("quick", "text", "enwiki", "base")
OWN_TEXT = "text"
BUDGET = {"text": "1h"}
MEASURED = {
    "quick": ("2 shared CPU cores", "90 CPU s", "0.998 bits per byte"),
    "text": ("2 shared CPU cores", "--budget=3m: 127 CPU s", "2.127 bits per byte, Tiny Shakespeare"),
    "enwiki": ("2 shared CPU cores", "27 min", "1.670 bits per byte"),
}


def get_config(variant: str = "quick") -> ConfigDict:
    """Return the settings of a variant."""
    config = ConfigDict({"task": "language_model"})
    {"quick": quick, "text": text, "enwiki": enwiki, "base": base}[variant](config)
    return config


def quick(config: ConfigDict) -> None:
    """20,000 sentences of the embedded grammar."""
    config.data = {"source": "grammar", "generated_sentences": 20_000}
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 1000}
    config.batching = {"tokens_per_update": 2048, "context_length": 128}
    config.model = {"num_layers": 2, "d_model": 128, "d_ff": 512, "num_heads": 4, "max_positions": 128}
    config.model.update(dropout=0.0, embedding_dropout=0.0, compute_dtype="auto")
    config.optimizer = {"schedule": "cosine", "learning_rate": 3e-3, "warmup_updates": 100, "clip_norm": 1.0}
    config.training = {"num_updates": 1500, "label_smoothing": 0.0, "evaluate_every": 500, "checkpoint_every": 500}
    config.training.update(keep_last=2)
    config.decoding = {"max_new_tokens": 60, "temperature": 0.8}


def text(config: ConfigDict) -> None:
    """Your own text: model, vocabulary, batches and length follow from the text and --budget.

    Rotary positions, ReLU squared and Muon, with a rate of its own, together lowered the loss on
    the three texts tried: experiments/tiny_shakespeare.
    """
    config.data = {"source": "text", "held_out": 0.05}
    config.tokenizer = {"training_sentences": 50_000}
    config.model = {"positions": "rope", "feed_forward": "relu_squared", "compute_dtype": "auto"}
    config.optimizer = {"name": "muon", "clip_norm": 1.0, "weight_decay": 0.1}
    config.training = {"label_smoothing": 0.0, "keep_last": 2}
    config.decoding = {"temperature": 0.8, "top_p": 0.95}


def enwiki(config: ConfigDict) -> None:
    """Train 1.8 million weights on 16 million tokens (size: Hoffmann et al. 2022).

    The weights of the embedding are not counted. It takes two cores 30 minutes.
    """
    config.data = {"source": "text", "train": "enwiki.txt.xz", "documents": "lines", "held_out": 0.05}
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 8192, "training_sentences": 50_000}
    config.batching = {"tokens_per_update": 4096, "context_length": 256}
    config.model = {"num_layers": 4, "d_model": 192, "d_ff": 768, "num_heads": 3, "max_positions": 256}
    config.model.update(dropout=0.0, embedding_dropout=0.0, compute_dtype="auto")
    config.optimizer = {"name": "adamw", "schedule": "cosine", "learning_rate": 3e-3, "warmup_updates": 200}
    config.optimizer.update(clip_norm=1.0, weight_decay=0.1)
    config.training = {"num_updates": 4000, "label_smoothing": 0.0, "evaluate_every": 1000, "checkpoint_every": 1000}
    config.training.update(keep_last=2, validation_sentences=1000)
    config.decoding = {"max_new_tokens": 100, "temperature": 0.8, "top_p": 0.95}


def base(config: ConfigDict) -> None:
    """Set the smallest size of GPT-2 (Radford et al. 2019); batches of half a million tokens."""
    config.data = {"source": "text", "train": "text.txt.xz", "documents": "lines", "held_out": 0.005}
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 50_256, "training_sentences": 1_000_000}
    config.batching = {"tokens_per_update": 2**19, "context_length": 1024, "row_multiple": 64, "accumulation_steps": 8}
    config.model = {"num_layers": 12, "d_model": 768, "d_ff": 3072, "num_heads": 12, "max_positions": 1024}
    config.model.update(dropout=0.0, embedding_dropout=0.0, compute_dtype="bfloat16")
    config.optimizer = {"name": "adamw", "schedule": "cosine", "learning_rate": 6e-4, "warmup_updates": 2000}
    config.optimizer.update(b2=0.95, epsilon=1e-8, weight_decay=0.1, clip_norm=1.0)
    config.training = {"num_updates": 20_000, "label_smoothing": 0.0, "evaluate_every": 1000, "checkpoint_every": 1000}
    config.training.update(keep_last=3, validation_sentences=10_000)
    config.decoding = {"max_new_tokens": 200, "temperature": 0.8, "top_p": 0.95}
