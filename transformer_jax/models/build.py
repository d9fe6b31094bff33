"""From settings to a model: every choice becomes an object here, so that no layer holds a flag."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, Array, PyTree
from transformer_jax.config import (
    DecoderOnlyConfig,
    Rates,
    RnnConfig,
    TransformerConfig,
    TransformerLayersConfig,
    default_parts,
    rates_of,
)
from transformer_jax.config.checks import declared, require
from transformer_jax.config.model import check_attention
from transformer_jax.config.plugins import registered
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.embedding import (
    BiasedProjection,
    Embedding,
    OutputLayer,
    UnscaledEmbedding,
    ZeroPaddingEmbedding,
)
from transformer_jax.layers.mixer import Mixer
from transformer_jax.layers.modified_attention import AttentionChange, ModifiedAttention
from transformer_jax.layers.positions import NoPositions, change_scores
from transformer_jax.layers.residual import Residual
from transformer_jax.layers.site import Site
from transformer_jax.models.build_rnn import build_rnn
from transformer_jax.models.decoder_only import DecoderOnly
from transformer_jax.models.devices import ANY_DEVICES, Devices, identity
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.layer_stack import Unrolled, layer_sites, stack_of
from transformer_jax.models.rnn import RnnSeq2Seq
from transformer_jax.models.transformer import Transformer
from transformer_jax.models.transformer_layers import LayerParts
from transformer_jax.sequence_types import Tokens

EMBEDDINGS: dict[str, Callable[..., Embedding]] = {
    "scaled": Embedding,
    "unscaled": UnscaledEmbedding,
    "zero_padding": ZeroPaddingEmbedding,
}


def build_model(
    config: TransformerConfig | RnnConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    on: Devices = ANY_DEVICES,
    rates: Rates | None = None,
    parts: Mapping[str, Any] | None = None,
) -> Transformer | RnnSeq2Seq:
    """The model of ``config`` for vocabularies of these sizes (the same size where embeddings are shared).

    ``rates`` replace the rates of ``config``: a compiled function may have them as arguments. ``parts``: the settings of parts
    by name, by default the declared ones. A recurrent model ignores ``on``.
    """
    rates = rates_of(config) if rates is None else rates
    parts = default_parts(config) if parts is None else parts
    if isinstance(config, RnnConfig):
        return build_rnn(config, source_vocabulary, target_vocabulary, rates, parts)
    make = _embedding_maker(config, on)
    source_embedding, target_embedding, projection = tied_embeddings(
        config.tying, make, make, source_vocabulary, target_vocabulary
    )
    return Transformer(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        projection=_projection(config, on, parts, projection),
        source_positions=_positions(config, Site("encoder", "embedding", config.num_encoder_layers, False), parts),
        target_positions=_positions(config, Site("decoder", "embedding", config.num_decoder_layers, True), parts),
        parts=_layer_parts(config, on, rates, parts),
        stack=stack_of(config.scan_layers, config.rematerialize),
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        embedding_dropout=rates.embedding_dropout,
    )


def build_decoder_only(
    config: DecoderOnlyConfig,
    vocabulary: int,
    on: Devices = ANY_DEVICES,
    rates: Rates | None = None,
    parts: Mapping[str, Any] | None = None,
) -> DecoderOnly:
    """The language model of ``config`` for a vocabulary of this size; ``rates`` and ``parts`` as for ``build_model``."""
    rates = rates_of(config) if rates is None else rates
    parts = default_parts(config) if parts is None else parts
    make = _embedding_maker(config, on)
    _, embedding, projection = tied_embeddings(config.tying, make, make, vocabulary, vocabulary)
    return DecoderOnly(
        embedding=embedding,
        projection=_projection(config, on, parts, projection),
        positions=_positions(config, Site("decoder", "embedding", config.num_layers, True), parts),
        parts=_layer_parts(config, on, rates, parts),
        num_layers=config.num_layers,
        stack=stack_of(config.scan_layers, config.rematerialize),
        embedding_dropout=rates.embedding_dropout,
    )


def init_decoder_only(model: DecoderOnly, key: Array) -> PyTree:
    """Initial parameters; their shapes do not depend on the batch."""
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return jax.jit(partial(model.init, train=False))(key, tokens)["params"]


def _embedding_maker(config: TransformerLayersConfig, on: Devices) -> Callable[..., Embedding]:
    precision = on.policies[config.compute_dtype].of_output_layer
    return partial(EMBEDDINGS[config.embedding], d_model=config.d_model, precision=precision, lookup=on.lookup)


def _part(
    kind: str, name: str, config: TransformerLayersConfig, parts: Mapping[str, Any], site: Site, **options: Any
) -> Any:
    """The part of this name at a site, by its function, or the method ``of`` of its class."""
    made = registered(kind)[name]
    return getattr(made, "of", made)(parts.get(name), config, site.named(name), **options)


def _projection(
    config: TransformerLayersConfig, on: Devices, parts: Mapping[str, Any], embedding: Embedding
) -> OutputLayer:
    plain = BiasedProjection(embedding) if config.logits_bias else embedding
    site = Site("decoder", "projection", config.decoder_depth, True)
    precision = on.policies[config.compute_dtype].of_output_layer
    made: OutputLayer = _part(
        "projection", config.projection, config, parts, site, embedding=plain, precision=precision
    )
    return made


def _layer_parts(config: TransformerLayersConfig, on: Devices, rates: Rates, parts: Mapping[str, Any]) -> LayerParts:
    precision = on.policies[config.compute_dtype]
    residual: type[Residual] = registered("residual")[config.normalization]

    def make_norm(site: Site) -> Any:
        return _part("norm", config.norm, config, parts, site, precision=precision)

    def make_feed_forward(site: Site) -> Any:
        options = {"dropout": rates.activation_dropout, "precision": precision}
        return _part("feed_forward", config.feed_forward, config, parts, site, **options)

    def make_residual(site: Site) -> Any:
        options = {"dropout": rates.dropout, "make_norm": partial(make_norm, site)}
        return _part("residual", config.normalization, config, parts, site, **options)

    attention = _attention_maker(config, on, rates, parts)
    return LayerParts(
        self_attention=_mixer_maker(config, on, parts, attention) if config.mixers else attention,
        cross_attention=attention,
        feed_forward=make_feed_forward,
        residual=make_residual,
        final_norm=make_norm if residual.has_final_norm else lambda site: identity,
        constrain=on.constrain,
        residual_dtype=residual.residual_dtype or precision.output,
    )


def _mixer_maker(
    config: TransformerLayersConfig,
    on: Devices,
    parts: Mapping[str, Any],
    attention: Callable[[Site], MultiHeadAttention],
) -> Callable[[Site], MultiHeadAttention | Mixer]:
    """Self-attention of encoders, and in each layer of the decoder the part that ``model.mixers`` names."""
    mixers, precision = config.layer_mixers, on.policies[config.compute_dtype]

    def make(site: Site) -> Any:
        if not site.is_causal:
            return attention(site)
        name = mixers[0] if len(set(mixers)) == 1 else mixers[site.layer]
        if name == "attention":
            return attention(site)
        return _part("mixer", name, config, parts, site, precision=precision)

    return make


def _attention_maker(
    config: TransformerLayersConfig, on: Devices, rates: Rates, parts: Mapping[str, Any]
) -> Callable[[Site], MultiHeadAttention]:
    """The paper's attention, another class, or the paper's with the changes of ``model.attention``, then of the positions.

    Raises ConfigError when changes are asked of another class.
    """
    sizes: dict[str, Any] = {
        "num_heads": config.num_heads,
        "key_size": config.head_key_size,
        "value_size": config.head_value_size,
        "d_model": config.d_model,
        "dropout": rates.attention_dropout,
        "precision": on.policies[config.compute_dtype],
        "backend": on.attention,
    }
    whole, changes, kinds = [], [], []
    for name in declared(type(config))["attention"].chosen(config.attention):
        made = registered("attention")[name]
        if isinstance(made, type) and issubclass(made, AttentionChange):
            changes.append(("attention", name))
            kinds += [made.attention] if made.attention else []
            continue
        problem = f"{name} must subclass AttentionChange or MultiHeadAttention; register a class"
        require(isinstance(made, type) and issubclass(made, MultiHeadAttention), "model.attention", problem)
        whole.append(name)
    require(len(kinds) < 2, "model.attention", f"{config.attention} names {len(kinds)} kinds of attention; choose one")
    attention: type[ModifiedAttention] = kinds[0] if kinds else ModifiedAttention
    if _change_attention(config, parts):
        changes.append(("positions", config.positions))
    check_attention(whole, [name for _, name in changes])
    if not changes:
        return lambda site: _part("attention", whole[0], config, parts, site, **sizes)

    def make(site: Site) -> MultiHeadAttention:
        makers = tuple((name, partial(_part, kind, name, config, parts, site)) for kind, name in changes)
        return attention(makers=makers, **sizes)

    return make


def _change_attention(config: TransformerLayersConfig, parts: Mapping[str, Any]) -> bool:
    """Whether the positions change the attention of any layer, or of all layers of a stack."""
    make = partial(_part, "positions", config.positions, config, parts)
    stacks = [Site("decoder", "self", config.decoder_depth, True)]
    layers = layer_sites(Unrolled(), stacks[0])
    if isinstance(config, TransformerConfig):
        stacks.append(Site("encoder", "self", config.num_encoder_layers, False))
        layers += [*(site.of("cross") for site in layers), *layer_sites(Unrolled(), stacks[1])]
    if any(make(site) is not None for site in layers):
        return True
    return any(change_scores(make(stack.of("embedding"))) for stack in stacks)


def _positions(config: TransformerLayersConfig, site: Site, parts: Mapping[str, Any]) -> nn.Module:
    made = _part("positions", config.positions, config, parts, site)
    return NoPositions(config.d_model) if made is None else made
