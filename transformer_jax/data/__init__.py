"""From text to batches: sources of text, tokenizers, token stores, batch plans, and the tf.data pipeline."""
