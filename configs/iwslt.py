r"""IWSLT, transcribed talks: German to English (2014) and English to Vietnamese (2015).

There are 160,000 and 133,000 pairs.

    transformer-jax train --config=iwslt:de_en --config.data.directory=iwslt14 \
        --workdir=runs/iwslt_de_en
    transformer-jax evaluate runs/iwslt_de_en --split=test \
        --config.evaluation.metrics=bleu_lowercase

    transformer-jax train --config=iwslt:en_vi --config.data.directory=iwslt15 \
        --workdir=runs/iwslt_en_vi
    transformer-jax train --config=iwslt:en_vi_luong --config.data.directory=iwslt15 \
        --workdir=runs/iwslt_en_vi_luong
    transformer-jax evaluate runs/iwslt_en_vi --split=test
    transformer-jax evaluate runs/iwslt_en_vi_luong --split=test

``iwslt14`` has train, valid and test as .de and .en files, lower-cased and without BPE, as the
script of fairseq prepares them (examples/translation/prepare-iwslt14.sh). ``iwslt15`` has train,
tst2012 and tst2013 as .en and .vi files, from https://nlp.stanford.edu/projects/nmt. Published
scores of the test sets: docs/benchmarks.md. The text is tokenized. BLEU of English applies
sacreBLEU's 13a to it, as joeynmt does. BLEU of Vietnamese applies no tokenizer.

Not yet run here on IWSLT, on any hardware. The commands ran, for a few updates of narrow models, on
made-up files of these names.
"""

import transformer_base
from ml_collections import ConfigDict

VARIANTS = ("de_en", "en_vi", "en_vi_luong")
SPLITS = {
    "de_en": {"validation_split": "valid", "test_split": "test", "source_language": "de", "target_language": "en"},
    "en_vi": {"validation_split": "tst2012", "test_split": "tst2013", "source_language": "en", "target_language": "vi"},
}


def get_config(variant: str = "de_en") -> ConfigDict:
    """Return the settings of a variant."""
    config = transformer_base.get_config()
    config.data = {"source": "text", "directory": "iwslt", "train_split": "train"}
    config.data.update(SPLITS["de_en" if variant == "de_en" else "en_vi"])
    config.evaluation = {"bleu_tokenizer": "13a" if variant == "de_en" else "none"}
    config.training = {"num_updates": 50_000, "evaluate_every": 2000, "checkpoint_every": 1000, "keep_last": 5}
    return luong(config) if variant == "en_vi_luong" else small_transformer(config)


def small_transformer(config: ConfigDict) -> ConfigDict:
    """Use the settings of fairseq's ``transformer_iwslt_de_en``.

    6 + 6 layers, 4 heads, dropout 0.3, 4,096 tokens.
    """
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 10_000, "joint": True}
    config.batching = {"kind": "packed", "packed_length": 128, "count": "tokens", "tokens_per_update": 4096}
    config.model.update(d_ff=1024, num_heads=4, dropout=0.3, embedding_dropout=0.3)
    config.optimizer = {
        "name": "adamw",
        "schedule": "inverse_square_root",
        "learning_rate": 5e-4,
        "warmup_updates": 4000,
        "weight_decay": 1e-4,
    }
    config.decoding = {"beam_width": 5, "length_penalty": 1.0}
    return config


def luong(config: ConfigDict) -> ConfigDict:
    """Use the settings of the tutorial of tensorflow/nmt.

    Two layers of LSTMs of 512 units, Luong's general attention.

    Departures: Adam instead of SGD; an encoder of two bidirectional layers instead of one;
    unscaled scores; length penalty 1; both vocabularies have 17,191 words, where the tutorial's
    Vietnamese one has 7,709.
    """
    config.tokenizer = {"kind": "word", "vocabulary_size": 17_191, "joint": False}
    config.data.update(max_source_tokens=50, max_target_tokens=50)
    config.batching = {"tokens_per_update": 128 * 20}
    config.model = {
        "kind": "rnn",
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "attention": "general",
        "d_embedding": 512,
        "d_hidden": 512,
        "d_attention": 512,
        "dropout": 0.2,
        "embedding_dropout": 0.2,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {"schedule": "inverse_square_root", "learning_rate": 1e-3, "warmup_updates": 1000}
    config.optimizer.clip_norm = 5.0
    config.training.update(num_updates=12_000, label_smoothing=0.0)
    config.decoding = {"beam_width": 10, "length_penalty": 1.0}
    return config
