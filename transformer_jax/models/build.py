"""From settings to a model: every choice becomes an object here, so that no layer holds a flag.

Recurrent and decoder-only models are imported only if they are built.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, Array, Hidden, PyTree
from transformer_jax.config import Rates, RnnConfig, TransformerConfig, TransformerLayersConfig, default_parts, rates_of
from transformer_jax.config.checks import declared
from transformer_jax.config.model import check_attention
from transformer_jax.layers.attention import MultiHeadAttention
from transformer_jax.layers.embedding import (
    BiasedProjection,
    Embedding,
    OutputLayer,
    UnscaledEmbedding,
    ZeroPaddingEmbedding,
)
from transformer_jax.layers.positions import NoPositions, change_scores
from transformer_jax.layers.site import Site
from transformer_jax.models.devices import ANY_DEVICES, Devices, identity
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.layer_stack import stack_of
from transformer_jax.models.transformer import Transformer
from transformer_jax.models.transformer_layers import LayerParts
from transformer_jax.precision import Precision
from transformer_jax.registry.plugins import registered
from transformer_jax.sequence_types import Tokens

if TYPE_CHECKING:
    from transformer_jax.config.language_model import DecoderOnlyConfig
    from transformer_jax.models.decoder_only import DecoderOnly
    from transformer_jax.models.rnn import RnnSeq2Seq

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
) -> "Transformer | RnnSeq2Seq":
    """Return the model of ``config`` for vocabularies of these sizes.

    ``rates`` replace the rates of ``config``, and may be arguments of a compiled function.
    ``parts`` are the settings of parts by name, by default from ``config``. A recurrent model
    ignores ``on``.
    """
    rates = rates_of(config) if rates is None else rates
    parts = default_parts(config) if parts is None else parts
    if isinstance(config, RnnConfig):
        from transformer_jax.models.build_rnn import build_rnn

        return build_rnn(config, source_vocabulary, target_vocabulary, rates, parts)
    maker = PartMaker(config, on, rates, parts)
    source_embedding, target_embedding, projection = tied_embeddings(
        config.tying, maker.embedding, maker.embedding, source_vocabulary, target_vocabulary
    )
    source_positions = maker.positions(Site("encoder", "embedding", config.num_encoder_layers, False))
    target_positions = maker.positions(Site("decoder", "embedding", config.num_decoder_layers, True))
    return Transformer(
        source_embedding=source_embedding,
        target_embedding=target_embedding,
        projection=maker.projection(projection),
        source_positions=source_positions,
        target_positions=target_positions,
        parts=maker.layer_parts(encoder=source_positions, decoder=target_positions),
        stack=stack_of(config.scan_layers, config.rematerialize),
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        embedding_dropout=rates.embedding_dropout,
    )


def build_decoder_only(
    config: "DecoderOnlyConfig",
    vocabulary: int,
    on: Devices = ANY_DEVICES,
    rates: Rates | None = None,
    parts: Mapping[str, Any] | None = None,
) -> "DecoderOnly":
    """Return the language model of ``config``; ``rates`` and ``parts`` as for ``build_model``."""
    from transformer_jax.models.decoder_only import DecoderOnly

    rates = rates_of(config) if rates is None else rates
    maker = PartMaker(config, on, rates, default_parts(config) if parts is None else parts)
    _, embedding, projection = tied_embeddings(config.tying, maker.embedding, maker.embedding, vocabulary, vocabulary)
    positions = maker.positions(Site("decoder", "embedding", config.num_layers, True))
    return DecoderOnly(
        embedding=embedding,
        projection=maker.projection(projection),
        positions=positions,
        parts=maker.layer_parts(decoder=positions),
        num_layers=config.num_layers,
        stack=stack_of(config.scan_layers, config.rematerialize),
        embedding_dropout=rates.embedding_dropout,
    )


def init_decoder_only(model: "DecoderOnly", key: Array) -> PyTree:
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return jax.jit(partial(model.init, train=False))(key, tokens)["params"]


class PartMaker(NamedTuple):
    """A maker of the parts of a Transformer at their sites, from settings, devices and rates."""

    config: TransformerLayersConfig
    on: Devices
    rates: Rates
    settings: Mapping[str, Any]

    @property
    def attention_names(self) -> tuple[str, ...]:
        return tuple(declared(type(self.config))["attention"].choices_in(self.config.attention))

    @property
    def precision(self) -> Precision:
        return self.on.policies[self.config.compute_dtype]

    def layer_parts(self, **positions: nn.Module) -> LayerParts:
        """Return the makers of the parts of a layer.

        ``positions`` may change the scores of its stack.
        """
        changed = frozenset(stack for stack, module in positions.items() if change_scores(module))
        residual = registered("residual")[self.config.normalization]
        constrain: Callable[[Any], Any] = partial(jax.tree.map, self.on.constrain)
        if self.carry:
            constrain = partial(self.carry.constrain_stream, constrain)
        return LayerParts(
            self_attention=partial(self.self_attention, changed),
            cross_attention=partial(self.attention, frozenset()),
            feed_forward=self.feed_forward,
            residual=self.residual,
            final_norm=self.norm if residual.has_final_norm else no_norm,
            constrain=constrain,
            residual_dtype=residual.residual_dtype or self.precision.output,
        )

    def part(self, kind: str, name: str, site: Site, **options: Any) -> Any:
        """Make a part at a site by its function, or by the method ``of`` of its class."""
        registration: Any = registered(kind)[name]
        make = registration.of if hasattr(registration, "of") else registration
        return make(self.settings.get(name), self.config, site.named(name), **options)

    def embedding(self, vocabulary: int) -> Embedding:
        precision = self.precision.of_output_layer
        return EMBEDDINGS[self.config.embedding](vocabulary, self.config.d_model, precision, self.on.lookup)

    def projection(self, embedding: Embedding) -> OutputLayer:
        inner = BiasedProjection(embedding) if self.config.logits_bias else embedding
        site = Site("decoder", "projection", self.config.decoder_depth, True)
        options = {"embedding": inner, "precision": self.precision.of_output_layer}
        return self.part("projection", self.config.projection, site, **options)

    def positions(self, site: Site) -> nn.Module:
        module = self.part("positions", self.config.positions, site)
        return NoPositions(self.config.d_model) if module is None else module

    def positions_change(self, site: Site) -> bool:
        """Return whether the positions change the attention of this layer.

        Only functions are called.
        """
        registration: Any = registered("positions")[self.config.positions]
        if hasattr(registration, "is_at"):
            return bool(registration.is_at(site))
        return self.part("positions", self.config.positions, site) is not None

    def norm(self, site: Site) -> Any:
        return self.part("norm", self.config.norm, site, precision=self.precision)

    def feed_forward(self, site: Site) -> Any:
        options = {"dropout": self.rates.activation_dropout, "precision": self.precision}
        return self.part("feed_forward", self.config.feed_forward, site, **options)

    def residual(self, site: Site) -> Any:
        options = {"dropout": self.rates.dropout, "make_norm": partial(self.norm, site)}
        name = self.config.normalization
        if not self.carry:
            return self.part("residual", name, site, **options)
        is_of_attention = site.kind == "self" and self.mixer(site) == "attention"
        carrying = self.carry.carrying_residual(registered("residual")[name], is_of_attention)
        return carrying.of(self.settings.get(name), self.config, site.named(name), **options)

    @property
    def carry(self) -> Any:
        """The module ``layers.carry`` if self-attentions pass a state between layers, else None."""
        parts = [("attention", name) for name in self.attention_names] + [("positions", self.config.positions)]
        if not any(getattr(registered(kind)[name], "carries", False) for kind, name in parts):
            return None
        from transformer_jax.layers import carry

        return carry

    def mixer(self, site: Site) -> str:
        """Return the name of the mixer at a site of self-attention, in an encoder ``attention``."""
        mixers = self.config.layer_mixers if site.is_causal else ("attention",)
        return mixers[0] if len(set(mixers)) == 1 else mixers[site.layer]

    def self_attention(self, changed: frozenset[str], site: Site) -> Any:
        """Make the attention, or in a decoder the mixer of the layer."""
        name = self.mixer(site)
        if name == "attention":
            return self.attention(changed, site)
        return self.part("mixer", name, site, precision=self.precision)

    def attention(self, changed: frozenset[str], site: Site) -> MultiHeadAttention:
        """Make the attention of ``model.attention``, with its changes and the changes of positions.

        ``changed``: stacks whose positions change the scores of all layers. Raises ConfigError if
        an attention other than the paper's would have to be changed.
        """
        config, registrations = self.config, registered("attention")
        options: dict[str, Any] = {
            "num_heads": config.num_heads,
            "key_size": config.head_key_size,
            "value_size": config.head_value_size,
            "d_model": config.d_model,
            "dropout": self.rates.attention_dropout,
            "precision": self.precision,
            "backend": self.on.attention,
        }
        whole = [name for name in self.attention_names if is_attention(registrations[name])]
        changes = [name for name in self.attention_names if name not in whole]
        of_positions = [config.positions] if site.stack in changed or self.positions_change(site) else []
        check_attention(whole, changes + of_positions)
        if not changes + of_positions:
            return self.part("attention", whole[0], site, **options)
        from transformer_jax.layers.modified_attention import class_for

        makers = [(name, partial(self.part, "attention", name, site)) for name in changes]
        makers += [(name, partial(self.part, "positions", name, site)) for name in of_positions]
        attention = class_for({name: registrations[name] for name in changes})
        if self.carry and site.kind == "self":
            attention = self.carry.carrying_attention(attention)
        return attention(makers=tuple(makers), **options)


def is_attention(registration: Any) -> bool:
    """Return whether a part of kind ``attention`` is an attention, not a change of one."""
    return isinstance(registration, type) and issubclass(registration, MultiHeadAttention)


def no_norm(site: Site) -> Callable[[Hidden], Hidden]:
    return identity
