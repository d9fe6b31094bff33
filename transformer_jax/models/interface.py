"""Interface of a sequence model for training, decoding and evaluation."""

from collections.abc import Callable
from typing import Any, Protocol

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.array_types import BOS_ID, EOS_ID, Array, Float, Int, Logits, PyTree
from transformer_jax.layers.embedding import Embedding, LogitFactors
from transformer_jax.sequence_types import DecodeCache, Tokens

# A Linen module with the methods of ``SequenceModel``.
Module = nn.Module


class SequenceModel(Protocol):
    """Methods of a Linen module, called through ``model.apply({"params": params}, ..., method=...)``.

    Attention weights are sown into the collection ``intermediates`` under the name ``attention_weights``.
    """

    def encode(self, source: Tokens, *, train: bool) -> PyTree:
        """Reads the source; the result is the ``memory`` of other methods."""

    def decode(self, target: Tokens, memory: PyTree, *, train: bool) -> Logits:
        """Teacher-forced pass: logits [B, T, V] of each token of ``target`` given those before it."""

    def factors(self, source: Tokens, target: Tokens, *, train: bool) -> LogitFactors:
        """The teacher-forced pass of both sides, stopped before the product over the vocabulary."""

    def init_cache(self, memory: PyTree, *, beam_width: int, max_length: int) -> DecodeCache:
        """The state before the first token, for ``beam_width`` hypotheses of at most ``max_length`` tokens each."""

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Logits of the next token after ``token_ids``, and the state after them; starts from ``BOS_ID``."""


def call(model: Module, params: PyTree, method: str, *arguments: Any, **options: Any) -> Any:
    """One of the methods of ``SequenceModel``, as a pure function of the parameters."""
    return model.apply({"params": params}, *arguments, method=method, **options)


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
    """The outputs of every module in a training pass."""
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

    ``tying``: ``all`` three (Vaswani et al. 2017, section 3.4), the two ``embeddings``, target embedding and ``output`` (Press
    and Wolf 2017), ``none``.
    """
    source, target, projection = embedding(source_size), embedding(target_size), output(target_size)
    return {
        "all": (source, source, source),
        "embeddings": (source, source, projection),
        "output": (source, target, target),
        "none": (source, target, projection),
    }[tying]
