"""Translation: sentence pairs, an encoder-decoder, beam search, BLEU."""
