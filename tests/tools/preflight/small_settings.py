"""A Transformer of a few thousand parameters, for programs that are compiled and not run."""

SETTINGS = {
    "data": {"max_source_tokens": 15, "max_target_tokens": 11},
    "tokenizer": {"vocabulary_size": 64},
    "batching": {"kind": "buckets", "tokens_per_update": 256, "row_multiple": 8},
    "model": {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 4},
}
