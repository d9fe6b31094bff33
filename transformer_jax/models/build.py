"""From settings to a model: every choice becomes an object here, so that no layer holds a flag."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax

from transformer_jax.array_types import Hidden
from transformer_jax.config import Rates, RnnConfig, TransformerConfig, TransformerLayersConfig, rates_of
from transformer_jax.config.plugins import registered
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.attention_backends import AttentionBackend, ByLength
from transformer_jax.layers.attention_variants import (
    AcausalAttention,
    BiasedAttention,
    RectifiedAttention,
    UnscaledAttention,
)
from transformer_jax.layers.embedding import (
    BiasedProjection,
    Embedding,
    Lookup,
    UnscaledEmbedding,
    ZeroPaddingEmbedding,
    rows_of_table,
)
from transformer_jax.layers.feed_forward import FeedForward, GatedFeedForward, in_float32, relu
from transformer_jax.layers.normalization import LayerNorm
from transformer_jax.layers.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    fairseq_table,
    sinusoid_table,
)
from transformer_jax.layers.residual import PostNormResidual, PreNormResidual
from transformer_jax.models.build_rnn import build_rnn
from transformer_jax.models.layer_stack import STACKS
from transformer_jax.models.rnn import RnnSeq2Seq
from transformer_jax.models.transformer import Transformer
from transformer_jax.models.transformer_layers import LayerParts
from transformer_jax.models.tying import tied_embeddings
from transformer_jax.precision import POLICIES_ON_CPU, Precision

FEED_FORWARDS: dict[str, Callable[..., nn.Module]] = {
    "relu": partial(FeedForward, activation=relu),
    "gelu": partial(FeedForward, activation=in_float32(jax.nn.gelu)),
    "exact_gelu": partial(FeedForward, activation=in_float32(partial(jax.nn.gelu, approximate=False))),
    "silu": partial(FeedForward, activation=in_float32(jax.nn.silu)),
    "gated_gelu": partial(GatedFeedForward, activation=in_float32(jax.nn.gelu)),
    "gated_silu": partial(GatedFeedForward, activation=in_float32(jax.nn.silu)),
}
ATTENTIONS: dict[str, Callable[..., MultiHeadAttention]] = {
    "multi_head": MultiHeadAttention,
    "biased": BiasedAttention,
    "rectified": RectifiedAttention,
    "unscaled": UnscaledAttention,
    "acausal": AcausalAttention,
}
EMBEDDINGS: dict[str, Callable[..., Embedding]] = {
    "scaled": Embedding,
    "unscaled": UnscaledEmbedding,
    "zero_padding": ZeroPaddingEmbedding,
}
SINUSOIDS = {"sinusoidal": sinusoid_table, "fairseq": fairseq_table}
RESIDUALS: dict[str, Callable[..., nn.Module]] = {"post": PostNormResidual, "pre": PreNormResidual}


def identity(hidden: Hidden) -> Hidden:
    """The identity, after the last layer of a post-norm stack: each of its layers ends with a norm."""
    return hidden


# A pre-norm stack needs one more norm after its last layer (Xiong et al. 2020, table 1).
FINAL_NORMS: dict[str, Callable[..., Callable[[Hidden], Hidden]]] = {"post": lambda **_: identity, "pre": LayerNorm}
# Between post-norm layers are the outputs of norms, between pre-norm layers the residual sums themselves.
STREAMS: dict[str, Callable[[Precision], str]] = {
    "post": lambda precision: precision.output,
    "pre": lambda _: "float32",
}


class Devices(NamedTuple):
    """Device-dependent parts of a Transformer.

    The attention backend, the placement of hidden states [B, L, D], the lookup in a table that may be sharded, and the
    precision policies by ``compute_dtype``.
    """

    attention: AttentionBackend = ByLength()
    place: Callable[[Hidden], Hidden] = identity
    lookup: Lookup = rows_of_table
    policies: Mapping[str, Precision] = POLICIES_ON_CPU


ANY_DEVICES = Devices()


def build_transformer(
    config: TransformerConfig, source_vocabulary: int, target_vocabulary: int, on: Devices, rates: Rates
) -> Transformer:
    """The Transformer of ``config`` for vocabularies of these sizes (the same size where embeddings are shared)."""
    precision = on.policies[config.compute_dtype]
    make = partial(EMBEDDINGS[config.embedding], d_model=config.d_model, precision=precision, lookup=on.lookup)
    source_embedding, target_embedding, projection = tied_embeddings(
        config.tying, make, make, source_vocabulary, target_vocabulary
    )
    return Transformer(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        projection=projection_of(config, projection),
        source_positions=positions_of(config),
        target_positions=positions_of(config),
        parts=layer_parts(config, on, rates),
        stack=STACKS[config.scan_layers, config.rematerialize],
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        embedding_dropout=rates.embedding_dropout,
    )


def layer_parts(config: TransformerLayersConfig, on: Devices, rates: Rates) -> LayerParts:
    """The makers of the parts of a layer."""
    precision = on.policies[config.compute_dtype]
    make_norm = partial(LayerNorm, epsilon=config.norm_epsilon, precision=precision)
    return LayerParts(
        attention=partial(
            (ATTENTIONS | registered("attention"))[config.attention],
            num_heads=config.num_heads,
            key_size=config.head_key_size,
            value_size=config.head_value_size,
            d_model=config.d_model,
            dropout=rates.attention_dropout,
            precision=precision,
            backend=on.attention,
        ),
        feed_forward=partial(
            FEED_FORWARDS[config.feed_forward],
            d_ff=config.d_ff,
            dropout=rates.activation_dropout,
            precision=precision,
        ),
        residual=partial(RESIDUALS[config.normalization], dropout=rates.dropout, make_norm=make_norm),
        final_norm=partial(FINAL_NORMS[config.normalization], epsilon=config.norm_epsilon, precision=precision),
        place=on.place,
        stream=STREAMS[config.normalization](precision),
    )


def positions_of(config: TransformerLayersConfig) -> nn.Module:
    """The positional encoding of a model."""
    if config.positions in registered("positions"):
        made: nn.Module = registered("positions")[config.positions](config)
        return made
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    if config.positions == "none":
        return NoPositions(config.d_model)
    return SinusoidalPositions(config.d_model, SINUSOIDS[config.positions])


def projection_of(config: TransformerLayersConfig, embedding: Embedding) -> Embedding | BiasedProjection:
    """The output projection of a model, whose matrix is that of ``embedding``."""
    return BiasedProjection(embedding) if config.logits_bias else embedding


def build_model(
    config: TransformerConfig | RnnConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    on: Devices = ANY_DEVICES,
    rates: Rates | None = None,
) -> Transformer | RnnSeq2Seq:
    """The model of ``config`` for vocabularies of these sizes; ``on`` matters to a Transformer only.

    ``rates`` stand for those of ``config``: in a function that is compiled they may be its arguments.
    """
    rates = rates_of(config) if rates is None else rates
    if isinstance(config, RnnConfig):
        return build_rnn(config, source_vocabulary, target_vocabulary, rates)
    return build_transformer(config, source_vocabulary, target_vocabulary, on, rates)
