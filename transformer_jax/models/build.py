"""From settings to a model: every choice becomes an object here, so that no layer holds a flag."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, Array, Hidden, PyTree
from transformer_jax.config import (
    DecoderOnlyConfig,
    Rates,
    RnnConfig,
    TransformerConfig,
    TransformerLayersConfig,
    rates_of,
)
from transformer_jax.config.plugins import registered
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.attention_variants import (
    AcausalAttention,
    BiasedAttention,
    RectifiedAttention,
    UnscaledAttention,
)
from transformer_jax.layers.embedding import BiasedProjection, Embedding, UnscaledEmbedding, ZeroPaddingEmbedding
from transformer_jax.layers.feed_forward import FeedForward, GatedFeedForward, in_float32, relu
from transformer_jax.layers.normalization import LayerNorm
from transformer_jax.layers.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    fairseq_table,
    sinusoid_table,
)
from transformer_jax.layers.residual import PostNormResidual, PreNormResidual, Residual
from transformer_jax.models.build_rnn import build_rnn
from transformer_jax.models.decoder_only import DecoderOnly
from transformer_jax.models.devices import ANY_DEVICES, Devices, identity
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.layer_stack import STACKS
from transformer_jax.models.rnn import RnnSeq2Seq
from transformer_jax.models.transformer import Transformer
from transformer_jax.models.transformer_layers import LayerParts
from transformer_jax.precision import Precision
from transformer_jax.sequence_types import Tokens

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
RESIDUALS: dict[str, Callable[..., Residual]] = {"post": PostNormResidual, "pre": PreNormResidual}
# A pre-norm stack needs one more norm after its last layer (Xiong et al. 2020, table 1).
FINAL_NORMS: dict[str, Callable[..., Callable[[Hidden], Hidden]]] = {"post": lambda **_: identity, "pre": LayerNorm}
# Post-norm layers pass on outputs of norms, pre-norm layers the residual sums themselves.
RESIDUAL_DTYPES: dict[str, Callable[[Precision], str]] = {
    "post": lambda precision: precision.output,
    "pre": lambda _: "float32",
}


def build_model(
    config: TransformerConfig | RnnConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    on: Devices = ANY_DEVICES,
    rates: Rates | None = None,
) -> Transformer | RnnSeq2Seq:
    """The model of ``config`` for vocabularies of these sizes (the same size where embeddings are shared).

    ``rates`` replace the rates of ``config``: a compiled function may have them as arguments. A recurrent model ignores ``on``.
    """
    rates = rates_of(config) if rates is None else rates
    if isinstance(config, RnnConfig):
        return build_rnn(config, source_vocabulary, target_vocabulary, rates)
    make = _embedding_maker(config, on)
    source_embedding, target_embedding, projection = tied_embeddings(
        config.tying, make, make, source_vocabulary, target_vocabulary
    )
    return Transformer(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        projection=BiasedProjection(projection) if config.logits_bias else projection,
        source_positions=_positions(config),
        target_positions=_positions(config),
        parts=_layer_parts(config, on, rates),
        stack=STACKS[config.scan_layers, config.rematerialize],
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        embedding_dropout=rates.embedding_dropout,
    )


def build_decoder_only(
    config: DecoderOnlyConfig, vocabulary: int, on: Devices = ANY_DEVICES, rates: Rates | None = None
) -> DecoderOnly:
    """The language model of ``config`` for a vocabulary of this size; ``rates`` as for ``build_model``."""
    rates = rates_of(config) if rates is None else rates
    make = _embedding_maker(config, on)
    _, embedding, projection = tied_embeddings(config.tying, make, make, vocabulary, vocabulary)
    return DecoderOnly(
        embedding=embedding,
        projection=BiasedProjection(projection) if config.logits_bias else projection,
        positions=_positions(config),
        parts=_layer_parts(config, on, rates),
        num_layers=config.num_layers,
        stack=STACKS[config.scan_layers, config.rematerialize],
        embedding_dropout=rates.embedding_dropout,
    )


def init_decoder_only(model: DecoderOnly, key: Array) -> PyTree:
    """Initial parameters; their shapes do not depend on the batch."""
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return jax.jit(partial(model.init, train=False))(key, tokens)["params"]


def _embedding_maker(config: TransformerLayersConfig, on: Devices) -> Callable[..., Embedding]:
    precision = on.policies[config.compute_dtype]
    return partial(EMBEDDINGS[config.embedding], d_model=config.d_model, precision=precision, lookup=on.lookup)


def _layer_parts(config: TransformerLayersConfig, on: Devices, rates: Rates) -> LayerParts:
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
        constrain=on.constrain,
        residual_dtype=RESIDUAL_DTYPES[config.normalization](precision),
    )


def _positions(config: TransformerLayersConfig) -> nn.Module:
    if config.positions in registered("positions"):
        made: nn.Module = registered("positions")[config.positions](config)
        return made
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    if config.positions == "none":
        return NoPositions(config.d_model)
    return SinusoidalPositions(config.d_model, SINUSOIDS[config.positions])
