"""The ancestors of the Transformer: recurrent encoder-decoders without attention, and with every classic one.

    transformer-jax train --config=configs/seq2seq.py:luong_general --workdir=runs/luong
    transformer-jax train --config=configs/seq2seq.py:bahdanau_copy --workdir=runs/copy
    transformer-jax train --config=configs/seq2seq.py:bahdanau_multi30k --config.data.directory=multi30k --workdir=runs/m30k_rnn

Each variant is for the generated corpus of quickstart.py; with ``_copy`` for copying up to 30 words, with ``_multi30k`` for
Multi30k (see multi30k.py). Sizes are for two CPU cores, not those of the papers. Not yet run.
"""

import multi30k
import quickstart
from ml_collections import ConfigDict

ONE_WAY = {"bidirectional_encoder": False, "decoder_start": "last"}
MODELS = {
    "sutskever": {
        "attention": "none",
        "reverse_source": True,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        **ONE_WAY,
    },
    "bahdanau": {"attention": "additive", "wiring": "bahdanau", "cell": "gru"},
    "luong_dot": {"attention": "dot", **ONE_WAY},
    "luong_general": {"attention": "general"},
    "luong_concat": {"attention": "concat"},
    "luong_local_p": {"attention": "local_p", "attention_window": 10},
    "location_sensitive": {"attention": "location_sensitive", "wiring": "bahdanau", "cell": "gru"},
}
FLAVOURS = ("", "_copy", "_multi30k")
VARIANTS = tuple(f"{name}{flavour}" for name in MODELS for flavour in FLAVOURS)


def get_config(variant: str = "luong_general") -> ConfigDict:
    """The settings of a variant: a model, and after it where it learns."""
    flavour = next(ending for ending in reversed(FLAVOURS) if variant.endswith(ending))
    config = {"": quickstart.get_config, "_copy": copy_task, "_multi30k": multi30k.get_config}[flavour]()
    config.model = {"kind": "rnn", "d_embedding": 128, "d_hidden": 128, "d_attention": 128, "compute_dtype": "bfloat16"}
    config.model.update(MODELS[variant.removesuffix(flavour)])
    return config


def copy_task() -> ConfigDict:
    """Sentences of up to 30 words, to be copied."""
    config = quickstart.get_config()
    config.data = {"source": "copy", "generated_pairs": 20_000, "max_source_tokens": 31, "max_target_tokens": 31}
    return config
