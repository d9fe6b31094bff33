"""From text to batches: sources of sentence pairs, tokenizers, the token store, batch plans, and the tf.data pipeline."""
