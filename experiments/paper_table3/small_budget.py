"""A budget for two CPU cores: every row sees the same batches as often."""

SMALL_BUDGET = {
    # One order of the data for all: runs that differ in their seed alone share what is compiled.
    "data.seed": 0,
    "data.max_source_tokens": 63,
    "data.max_target_tokens": 63,
    "tokenizer.vocabulary_size": 4000,
    "batching.tokens_per_update": 1024,
    "optimizer.schedule": "cosine",
    "optimizer.learning_rate": 1.5e-3,
    "optimizer.warmup_updates": 160,
    "training.num_updates": 800,
    # The table translates the whole split afterwards.
    "training.evaluate_every": 800,
    "training.validation_sentences": 128,
    "training.validation_beam_width": 0,
    "training.checkpoint_every": 200,
    "training.keep_last": 1,
    "decoding.beam_width": 4,
    "decoding.length_penalty": 0.6,
}
