"""Decoding: beam search and sampling over a step function; independent of the model."""

from transformer_jax.decoding.beam_search import DecodeStep, Hypotheses, beam_search, length_penalty_divisor
from transformer_jax.decoding.source_batches import SourceBatch, source_batches

__all__ = [
    "DecodeStep",
    "Hypotheses",
    "SourceBatch",
    "beam_search",
    "length_penalty_divisor",
    "source_batches",
]
