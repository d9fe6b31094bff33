"""Decoding: beam search and sampling over a step function; independent of the model."""
