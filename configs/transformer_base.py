"""The Transformer of the paper (section 5 and table 3) on WMT 2014 English-German.

    transformer-jax train --config=configs/transformer_base.py --workdir=runs/base
    transformer-jax train --config=configs/transformer_base.py:big --workdir=runs/big

Variants: ``base`` (63 million parameters, in the paper 65, 100,000 updates) and ``big`` (214
million, in the paper 213, 300,000 updates). The paper reports tokenized BLEU 27.3 and 28.4 on
newstest2014, with the average of the last 5 (base) or 20 (big) checkpoints, written every 10
minutes.

Departures from the paper:

- sentencepiece BPE instead of the paper's, and checkpoints every 1000 updates;
- filters (the paper names none) remove training pairs with more than 255 tokens on a side, with one
  side above 9 times the other, with an empty side, with the same text on both sides, or with a line
  above 1 MB;
- batches of about 25,000 tokens a side without padding, as in the paper, but of packed rows instead
  of pairs of similar length: several pairs share a row of 128 positions (longer pairs get up to
  256) and do not attend to each other. Widths are multiples of 16, which suits TPUs;
- matrix products in bfloat16, with float32 parameters and softmax (the paper does not name its
  precision);
- the search ends when no better hypothesis is possible, at most 50 tokens beyond the length of the
  source (as in the paper).

With 4.5 million simulated pairs of WMT's lengths (means of 28.8 and 31.2 pieces) an update has
24,000 source and 25,998 target tokens, 2.3 % and 6.6 % of the positions are padding, and there are
4 shapes to compile. With 10,000 real pairs (29.0 and 30.9 pieces): 24,137 and 25,677 tokens, 7.6 %
and 1.7 % padding, 2 shapes (experiments/benchmarks).

``ten_billion`` is not in the paper: the same model with 24 + 20 layers of width 4096, pre-norm,
10.3 billion parameters, for ``transformer-jax preflight
--config=configs/transformer_base.py:ten_billion --topology=v5p:4x8x8`` (a v5p-512).

Not yet run here, on any hardware.
"""

from ml_collections import ConfigDict

VARIANTS = ("base", "big", "ten_billion")


def get_config(variant: str = "base") -> ConfigDict:
    """Return the settings of a variant."""
    config = ConfigDict()
    config.data = {
        "source": "tfds",
        "name": "wmt14_translate/de-en",
    }
    config.tokenizer = {"kind": "bpe", "vocabulary_size": 37_000, "joint": True, "training_sentences": 1_000_000}
    config.batching = {"kind": "packed", "packed_length": 128, "width_multiple": 16, "row_multiple": 8}
    config.batching.update(count="tokens", tokens_per_update=25_000)
    config.model = {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "normalization": "post",
        "positions": "sinusoidal",
        "tying": "all",
        "dropout": 0.1,
        "embedding_dropout": 0.1,
        "compute_dtype": "bfloat16",
    }
    config.optimizer = {
        "name": "adam",
        "schedule": "noam",
        "learning_rate": 1.0,
        "warmup_updates": 4000,
        "b1": 0.9,
        "b2": 0.98,
        "epsilon": 1e-9,
    }
    config.training = {
        "num_updates": 100_000,
        "label_smoothing": 0.1,
        "evaluate_every": 5000,
        "checkpoint_every": 1000,
        "keep_last": 5,
    }
    config.decoding = {"beam_width": 4, "length_penalty": 0.6, "max_extra_tokens": 50}
    if variant == "big":
        config.model.update(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, embedding_dropout=0.3)
        config.training.update(num_updates=300_000, keep_last=20)
    if variant == "ten_billion":
        config.tokenizer.vocabulary_size = 32_768
        config.data.update(max_source_tokens=511, max_target_tokens=511)
        config.batching = {
            "kind": "packed",
            "packed_length": 512,
            "tokens_per_update": 1024 * 512,
            "row_multiple": 512,
        }
        config.model.update(num_encoder_layers=24, num_decoder_layers=20, d_model=4096, d_ff=16_384, num_heads=32)
        config.model.update(normalization="pre", scan_layers=True, rematerialize="full")
        config.mesh = {"data": -1, "fsdp": 64}
    return config
