"""From text to batches: sources of text, tokenizers, token stores, plans, prefetching."""
