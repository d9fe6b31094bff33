"""A small part of experiments/own_text: at the rates of short runs post-norm encoders collapse, pre-norm ones do not."""

import json

import pytest
from run_steps import train

from transformer_jax.config import from_dict


@pytest.mark.slow
@pytest.mark.parametrize(("normalization", "is_uniform"), [("post", True), ("pre", False)])
def test_four_post_norm_layers_lose_the_source_at_a_high_rate(normalization, is_uniform, tmp_path):
    layers = {"num_encoder_layers": 4, "num_decoder_layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4}
    config = from_dict(
        {
            "data": {"source": "grammar", "generated_pairs": 4000, "cache_directory": str(tmp_path / "cache")},
            "tokenizer": {"vocabulary_size": 600},
            "batching": {"kind": "packed", "count": "tokens", "packed_length": 64, "tokens_per_update": 2048},
            "model": {**layers, "normalization": normalization, "dropout": 0.1},
            "optimizer": {"schedule": "cosine", "learning_rate": 2.5e-3, "warmup_updates": 50},
            "training": {"num_updates": 220, "evaluate_every": 220, "validation_sentences": 32},
            "decoding": {"beam_width": 1},
            "mesh": {"data": 1},
        }
    )
    outcome = train(config, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entropy = [json.loads(line).get("validation/cross_attention_entropy") for line in lines][-1]
    assert (entropy > 0.98) == is_uniform
    assert any("every head of cross attention is uniform" in sign for sign in outcome.signs) == is_uniform
