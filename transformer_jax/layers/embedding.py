"""Token embeddings, and projections to logits that may share their matrix (section 3.4)."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from transformer_jax.array_types import PAD_ID, AnyArray, Array, Float, Hidden, Int, Logits
from transformer_jax.layers.parameter_initialization import Layer, embedding_normal
from transformer_jax.layers.site import Site
from transformer_jax.precision import FLOAT32, Precision, einsum
from transformer_jax.registry.plugins import register

Lookup = Callable[[Float[Array, "V D"], Int[Array, "B L"]], Float[Array, "B L D"]]
"""Reads rows of a table; a sharded table needs another one than ``rows_of_table``."""


def rows_of_table(table: Float[Array, "V D"], token_ids: Int[Array, "B L"]) -> Float[Array, "B L D"]:
    return table[token_ids]


class LogitFactors(NamedTuple):
    """Factors of the logits: ``hidden`` [B, T, D], ``matrix`` [V, D], and ``logit_mod`` after.

    ``logit_mod`` is ``Partial(function, *arrays)``, an elementwise ``function(*arrays, logits)`` of
    float32 logits [..., V]. No array may have the axis V, to which a GPU or TPU adds columns.
    """

    hidden: Hidden
    matrix: Float[Array, "V D"]
    logit_mod: Partial | None = None

    def logits(self, precision: Precision) -> Logits:
        product = einsum("BTD,VD->BTV", self.hidden, self.matrix, precision)
        return product if self.logit_mod is None else self.logit_mod(product)


class OutputLayer(Layer):
    """A layer from hidden states to logits. Subclasses have a precision or override ``logits``."""

    def factors(self, hidden: Hidden) -> LogitFactors:
        """Return the factors of the logits; the loss multiplies them for some tokens at a time."""
        raise NotImplementedError

    def logits(self, hidden: Hidden) -> Logits:
        return self.factors(hidden).logits(self.precision.float32_output)


class Embedding(OutputLayer):
    """A matrix [V, D] of embeddings that, if tied, is also the pre-softmax projection."""

    vocabulary_size: int
    d_model: int
    precision: Precision = FLOAT32
    lookup: Lookup = rows_of_table

    def setup(self) -> None:
        self.table = self.param("table", embedding_normal(self.d_model), (self.vocabulary_size, self.d_model))

    def embed(self, token_ids: Int[AnyArray, "B L"]) -> Float[Array, "B L D"]:
        """Return rows of the matrix times sqrt(d_model)."""
        return self.lookup(self.table, jnp.asarray(token_ids)) * self.d_model**0.5

    def factors(self, hidden: Hidden) -> LogitFactors:
        return LogitFactors(hidden, self.table)


class ZeroPaddingEmbedding(Embedding):
    """An embedding in which padding is zero and stays zero."""

    def embed(self, token_ids: Int[AnyArray, "B L"]) -> Float[Array, "B L D"]:
        return jnp.where((jnp.asarray(token_ids) == PAD_ID)[..., None], 0.0, super().embed(token_ids))


class UnscaledEmbedding(Embedding):
    """An embedding without the factor sqrt(d_model), as in GPT-2."""

    def embed(self, token_ids: Int[AnyArray, "B L"]) -> Float[Array, "B L D"]:
        return self.lookup(self.table, jnp.asarray(token_ids))


class BiasedProjection(OutputLayer):
    """The projection of ``embedding`` with a bias [V] on its logits, as in OPUS-MT."""

    embedding: Embedding

    def setup(self) -> None:
        self.logits_bias = self.param("logits_bias", nn.initializers.zeros, (self.embedding.vocabulary_size,))

    def logits(self, hidden: Float[Array, "B L D"]) -> Float[Array, "B L V"]:
        return self.embedding.logits(hidden) + self.logits_bias[None, None]

    def factors(self, hidden: Hidden) -> LogitFactors:
        """Return factors of ``logits``: columns of ones, and the bias in columns of the matrix.

        A second column has the rest of the bias if operands may be rounded (``float32`` on a GPU or
        TPU).
        """
        hidden, table, _ = self.embedding.factors(hidden)
        parts = [self.logits_bias]
        if self.embedding.precision.product != lax.Precision.HIGHEST:
            # To bfloat16, which TF32 contains.
            rounded = lax.stop_gradient(lax.reduce_precision(self.logits_bias, 8, 7))
            parts = [rounded, self.logits_bias - rounded]
        ones = jnp.ones((*hidden.shape[:2], len(parts)), hidden.dtype)
        columns = jnp.concatenate([table, jnp.stack(parts, -1)], -1)
        return LogitFactors(jnp.concatenate([hidden, ones], -1), columns)


class Projection(OutputLayer):
    """An output layer around ``embedding``, which ``model.tying`` selects. Override ``factors``.

    ``keeps_hidden``: whether ``factors`` leaves the hidden states unchanged, as the heads of
    ``multi_token`` need.
    """

    keeps_hidden: ClassVar[bool] = False
    settings: Any
    config: Any
    site: Site
    embedding: OutputLayer
    precision: Precision

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site, **options: Any) -> "Projection":
        return cls(settings, config, site, **options)

    def factors(self, hidden: Hidden) -> LogitFactors:
        return self.embedding.factors(hidden)


register("projection", "linear")(lambda settings, config, site, *, embedding, precision: embedding)
