"""Do embeddings learned from monolingual text help a small translation model? 500, 2,000 and 29,000
pairs, three seeds.

    transformer-jax sweep --sweep=experiments/initial_embeddings/sweep.py --workdir=runs/initial_embeddings \\
        --config.data.directory=multi30k

``multi30k`` also holds ``train_500`` and ``train_2000``, the first lines of ``train``, and
``vectors.bin`` lies in the working directory; README.md has the commands that make them.
"""

from transformer_jax.tools.study.sweeps import Sweep

VECTORS = "vectors.bin"
# Pairs: the split, pieces of the vocabulary, updates, and the dropout that suits so little text.
SIZES = {500: ("train_500", 1000, 300, 0.3), 2000: ("train_2000", 2000, 500, 0.2), 29000: ("train", 6000, 1000, 0.1)}
SMALL = {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2}


def get_sweep() -> Sweep:
    """Each size with randomly initialized embeddings and with the vectors."""
    rows = {
        f"{pairs} pairs {name}": SMALL
        | {
            "data.train_split": split,
            "tokenizer.vocabulary_size": pieces,
            "training.num_updates": updates,
            "training.evaluate_every": updates,
            "training.checkpoint_every": updates,
            "optimizer.warmup_updates": updates // 4,
            "model.dropout": dropout,
            "init.embeddings": file,
        }
        for pairs, (split, pieces, updates, dropout) in SIZES.items()
        for name, file in (("random", ""), ("vectors", VECTORS))
    }
    whole = {"training.validation_sentences": 0, "training.validation_beam_width": 0}
    overrides = {"data.seed": 0, **whole}
    return Sweep(config="configs/multi30k.py:tiny_minutes", overrides=overrides, rows=rows, seeds=(1, 2, 3))
