"""Interface of a sequence model for training, decoding and evaluation."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, Array, Int, Logits, PyTree
from transformer_jax.layers.embedding import Embedding, LogitFactors, OutputLayer
from transformer_jax.sequence_types import Tokens

# A Linen module that has the methods of a sequence model; ``call`` lists them.
Module = nn.Module


def call(model: Module, params: PyTree, method: str, *arguments: Any, **options: Any) -> Any:
    """Return a method of a sequence model, as a pure function of the parameters.

    ``encode(source, train)``: read the source; the result is the ``memory`` of others.
    ``decode(target, memory, train)``: teacher-forced logits [B, T, V] of each token of ``target``
    given the tokens before it. ``factors(source, target, train)``: encode and decode up to the
    output layer, as ``LogitFactors``. ``init_cache(memory, beam_width, max_length)``: the
    ``DecodeCache`` before the first token. ``decode_step(token_ids, cache)``: logits [B, W, V] of
    the next token after ids [B, W], and the cache after them. The first ids are ``BOS_ID``.

    Attention weights are sown into the collection ``intermediates`` under the name ``attention_weights``.
    """
    return model.apply({"params": params}, *arguments, method=method, **options)


class EncoderDecoder(nn.Module):
    """A sequence model whose subclasses have ``encode``, ``decode_hidden``, ``init_cache`` and ``decode_step``.

    ``source_embedding``, ``target_embedding`` and ``projection`` share a matrix, named after the
    first of them, where they are the same module.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    projection: OutputLayer

    def __call__(self, source: Tokens, target: Tokens, *, train: bool) -> Logits:
        """Teacher-forced logits [B, T, V]: ``decode`` after ``encode``."""
        return self.decode(target, self.encode(source, train=train), train=train)

    def decode(self, target: Tokens, memory: Any, *, train: bool) -> Logits:
        """Logits of every token of the target."""
        return self.projection.logits(self.decode_hidden(target, memory, train=train))

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        """Return the two factors of the teacher-forced logits."""
        return self.projection.factors(self.decode_hidden(target, self.encode(source, train=train), train=train))


def init_params(model: nn.Module, key: Array) -> PyTree:
    """Initial parameters; their shapes do not depend on the batch."""
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return model.init(key, tokens, tokens, train=False)["params"]


def shift_right(target: Tokens) -> Int[Array, "B T"]:
    """Decoder inputs for predicting ``target``: each sentence starts with BOS and loses its last token.

    For the ids and positions ``[[7, 8, 2, 9, 2, 0]]`` and ``[[0, 1, 2, 0, 1, 0]]``, ``[[1, 7, 8, 1, 9, 1]]`` (BOS is 1).
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
"""An embedding for a vocabulary of a given size."""


def tied_embeddings(
    tying: str, embedding: MakeEmbedding, output: MakeEmbedding, source_size: int, target_size: int
) -> tuple[Embedding, Embedding, Embedding]:
    """Source embedding, target embedding and output projection; modules that share a matrix are the same object.

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
