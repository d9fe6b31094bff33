r"""The predecessors of the Transformer: recurrent encoder-decoders with classic attentions.

    transformer-jax train --config=configs/seq2seq.py:luong_general --workdir=runs/luong
    transformer-jax train --config=configs/seq2seq.py:bahdanau_copy --workdir=runs/copy
    transformer-jax train --config=configs/seq2seq.py:bahdanau_multi30k \
        --config.data.directory=multi30k --workdir=runs/m30k_rnn

A model trains on the generated corpus of quickstart.py. With ``_copy`` it copies up to 30 words,
with ``_multi30k`` it trains on Multi30k (see multi30k.py). The sizes are for two CPU cores.
experiments/attention_ancestors has the results on Multi30k.

At the sizes of the papers, on WMT 2014, not yet run: ``rnnsearch_50`` (Bahdanau et al. 2015, 81.4
million parameters) and ``luong_wmt`` (Luong et al. 2015, 222 million). Both depart from them in the
optimizer (Adam instead of Adadelta and SGD), in the initial values, in embeddings that are
multiplied by the root of their width, and in scores and readouts without biases.
"""

import multi30k
import quickstart
import transformer_base
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
FLAVORS = ("", "_copy", "_multi30k")
PAPERS = ("rnnsearch_50", "luong_wmt")
VARIANTS = (*(f"{name}{flavor}" for name in MODELS for flavor in FLAVORS), *PAPERS)
# With d_hidden and d_attention of 256, for twelve minutes (experiments/attention_ancestors).
MEASURED = {
    f"{name}_multi30k": ("2 CPU cores", "12 min at width 256", f"test BLEU {bleu}")
    for name, bleu in (
        ("sutskever", 19.6),
        ("bahdanau", 36.1),
        ("luong_dot", 34.2),
        ("luong_general", 35.7),
        ("luong_concat", 38.0),
        ("luong_local_p", 34.3),
        ("location_sensitive", 35.8),
    )
} | {
    # experiments/copy_alignment.
    f"{name}_copy": ("2 CPU cores", f"{updates} updates", f"{exact} % copied exactly")
    for name, updates, exact in (
        ("sutskever", "1,200", 45.4),
        ("bahdanau", "1,200", 100.0),
        ("luong_dot", "1,200", 99.8),
        ("luong_general", "2,000", 99.4),
        ("luong_concat", "1,200", 99.8),
        ("luong_local_p", "1,200", 99.8),
        ("location_sensitive", "1,200", 100.0),
    )
}


def get_config(variant: str = "luong_general") -> ConfigDict:
    """Return the settings of a model and its data, or of a paper."""
    if variant in PAPERS:
        return {"rnnsearch_50": rnnsearch_50, "luong_wmt": luong_wmt}[variant]()
    flavor = next(ending for ending in reversed(FLAVORS) if variant.endswith(ending))
    config = {"": quickstart.get_config, "_copy": copy_task, "_multi30k": multi30k.get_config}[flavor]()
    config.model = {"kind": "rnn", "d_embedding": 128, "d_hidden": 128, "d_attention": 128, "compute_dtype": "auto"}
    config.model.update(MODELS[variant.removesuffix(flavor)])
    return config


def copy_task() -> ConfigDict:
    """Return settings to copy sentences of up to 30 words."""
    config = quickstart.get_config()
    config.data = {"source": "copy", "generated_pairs": 20_000, "generated_words": 30}
    config.data.update(max_source_tokens=31, max_target_tokens=31)
    config.training.num_updates = 2000
    return config


def rnnsearch_50() -> ConfigDict:
    """Return RNNsearch-50 (Bahdanau et al. 2015): English-French, at most 50 words a sentence.

    Section 4 and appendix A.2.

    1,000 units in each direction and in the decoder, embeddings of 620, maxout of 500, 30,000 words
    a side. Departures: the cell (see layers/recurrent.py), and the first decoder state, which is
    computed from the last states of both directions.
    """
    config = transformer_base.get_config()
    config.data.update(name="wmt14_translate/fr-en", target_language="fr", max_source_tokens=50, max_target_tokens=50)
    config.tokenizer = {"kind": "word", "vocabulary_size": 30_000, "joint": False}
    config.batching = {"tokens_per_update": 80 * 50, "row_multiple": 8}
    config.model = {
        "kind": "rnn",
        "cell": "gru",
        "attention": "additive",
        "wiring": "bahdanau",
        "d_embedding": 620,
        "d_hidden": 1000,
        "d_attention": 1000,
        "d_readout": 500,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {"schedule": "constant", "learning_rate": 3e-4, "warmup_updates": 1000, "clip_norm": 1.0}
    config.training = {"num_updates": 300_000, "label_smoothing": 0.0, "evaluate_every": 10_000}
    return config


def luong_wmt() -> ConfigDict:
    """Return the best single model of Luong et al. 2015 (section 4.1): local-p, English-German.

    4 layers of 1,000 LSTM cells on each side, embeddings of 1,000, 50,000 words a side, the source
    reversed, input feeding, dropout 0.2, D = 10.
    """
    config = transformer_base.get_config()
    config.data.update(max_source_tokens=50, max_target_tokens=50)
    config.tokenizer = {"kind": "word", "vocabulary_size": 50_000, "joint": False}
    config.batching = {"tokens_per_update": 128 * 50, "row_multiple": 8}
    config.model = {
        "kind": "rnn",
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "attention": "local_p",
        "attention_window": 10,
        "reverse_source": True,
        "d_embedding": 1000,
        "d_hidden": 1000,
        "d_attention": 1000,
        "dropout": 0.2,
        "embedding_dropout": 0.2,
        "compute_dtype": "bfloat16",
        **ONE_WAY,
    }
    config.optimizer = {
        "schedule": "inverse_square_root",
        "learning_rate": 1e-3,
        "warmup_updates": 4000,
        "clip_norm": 5.0,
    }
    config.training = {"num_updates": 350_000, "label_smoothing": 0.0, "evaluate_every": 10_000}
    return config
