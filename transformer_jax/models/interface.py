"""Interface of a sequence model for training, decoding and evaluation."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, Array, Int, Logits, PyTree
from transformer_jax.layers.embedding import Embedding, LogitFactors, OutputLayer
from transformer_jax.sequence_types import Tokens

# A Linen module with the methods of a sequence model, which ``call`` lists.
Module = nn.Module


def call(model: Module, params: PyTree, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of a sequence model as a pure function of the parameters.

    ``encode(source, train)``: the ``memory`` that other methods read. ``decode(target, memory,
    train)``: teacher-forced logits [B, T, V] of tokens of ``target`` from the tokens before it.
    ``factors(source, target, train)``: the same as ``LogitFactors``, with the encoder.
    ``init_cache(memory, beam_width, max_length)``: the ``DecodeCache`` before the first token.
    ``decode_step(token_ids, cache)``: logits [B, W, V] of the next token after ids [B, W], which
    begin with ``BOS_ID``, and the next cache. Attention weights are sown into the collection
    ``intermediates`` under the name ``attention_weights``.
    """
    return model.apply({"params": params}, *arguments, method=method, **options)


class EncoderDecoder(nn.Module):
    """A model whose subclasses have ``encode``, ``decode_hidden``, ``init_cache``, ``decode_step``.

    Modules of ``source_embedding``, ``target_embedding`` and ``projection`` that are the same share
    a matrix, named after the first.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    projection: OutputLayer

    def __call__(self, source: Tokens, target: Tokens, *, train: bool) -> Logits:
        return self.decode(target, self.encode(source, train=train), train=train)

    def decode(self, target: Tokens, memory: Any, *, train: bool) -> Logits:
        return self.projection.logits(self.decode_hidden(target, memory, train=train))

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        return self.projection.factors(self.decode_hidden(target, self.encode(source, train=train), train=train))


def init_params(model: nn.Module, key: Array) -> PyTree:
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return model.init(key, tokens, tokens, train=False)["params"]


def shift_right(target: Tokens) -> Int[Array, "B T"]:
    """Return the decoder inputs for ``target``: BOS, then a sentence without its last token.

    For ids ``[[7, 8, 2, 9, 2, 0]]`` and positions ``[[0, 1, 2, 0, 1, 0]]``: ``[[1, 7, 8, 1, 9,
    1]]``.
    """
    previous = jnp.pad(target.ids[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(target.positions == 0, BOS_ID, previous)


def activations(model: nn.Module, params: PyTree, *inputs: PyTree, key: Array) -> PyTree:
    """Return the outputs of every module in a training pass."""
    _, sown = model.apply(
        {"params": params},
        *inputs,
        train=True,
        rngs={"dropout": key},
        capture_intermediates=True,
        mutable=["intermediates"],
    )
    return sown["intermediates"]


MakeEmbedding = Callable[[int], Embedding]
"""Makes the embedding of a vocabulary of a size."""


def tied_embeddings(
    tying: str, embedding: MakeEmbedding, output: MakeEmbedding, source_size: int, target_size: int
) -> tuple[Embedding, Embedding, Embedding]:
    """Return source embedding, target embedding and output projection; tied ones are one module.

    ``tying``: ``all`` three (Vaswani et al. 2017, section 3.4), the two ``embeddings``, target
    embedding and ``output`` (Press and Wolf 2017), ``none``.
    """
    source, target, projection = embedding(source_size), embedding(target_size), output(target_size)
    return {
        "all": (source, source, source),
        "embeddings": (source, source, projection),
        "output": (source, target, target),
        "none": (source, target, projection),
    }[tying]
