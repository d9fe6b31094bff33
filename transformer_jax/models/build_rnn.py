"""From settings to a recurrent encoder-decoder: every choice becomes an object here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn

from transformer_jax.config import ConfigError, Rates, RnnConfig
from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.recurrent import CELLS, RecurrentLayer
from transformer_jax.layers.rnn_attention import (
    AdditiveScore,
    ContentAttention,
    DotScore,
    GeneralScore,
    LocationBasedAttention,
    LocationSensitiveAttention,
    MonotonicWindow,
    Normalizer,
    PredictedWindow,
    RnnAttention,
    Score,
    WholeSource,
    masked_softmax,
    sharpened_softmax,
    smoothed_sigmoid,
)
from transformer_jax.layers.site import Site
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.rnn import Bridge, LastStates, RnnEncoder, RnnSeq2Seq, ZeroStates
from transformer_jax.models.rnn_decoder import BahdanauDecoder, InputFeedingDecoder, LuongDecoder, PlainDecoder, Stack
from transformer_jax.precision import POLICIES, Precision
from transformer_jax.registry.plugins import register, registered


def build_rnn(
    config: RnnConfig, source_vocabulary: int, target_vocabulary: int, rates: Rates, parts: Mapping[str, Any]
) -> RnnSeq2Seq:
    # Gates and states of a recurrence are float32. Only operands of products are rounded.
    precision = POLICIES[config.compute_dtype].float32_output
    source, target, projection = tied_embeddings(
        config.tying,
        partial(Embedding, d_model=config.d_embedding, precision=precision),
        partial(Embedding, d_model=config.d_output, precision=precision),
        source_vocabulary,
        target_vocabulary,
    )
    make_layer = partial(RecurrentLayer, CELLS[config.cell](), hidden_size=config.d_hidden, precision=precision)
    bridge = Bridge(config.d_memory, config.d_hidden, precision)
    return RnnSeq2Seq(
        source_embedding=source,
        target_embedding=target,
        projection=projection,
        encoder=RnnEncoder(
            make_layer=make_layer,
            num_layers=config.num_encoder_layers,
            input_size=config.d_embedding,
            hidden_size=config.d_hidden,
            is_bidirectional=config.bidirectional_encoder,
            dropout=rates.dropout,
        ),
        decoder=_decoder(config, make_layer, precision, rates, parts),
        bridge={"last": LastStates(), "bridge": bridge, "zeros": ZeroStates()}[config.decoder_start],
        reverses_source=config.reverse_source,
        embedding_dropout=rates.embedding_dropout,
        scheduled_sampling=rates.scheduled_sampling,
    )


def _decoder(
    config: RnnConfig,
    make_layer: Callable[[int], RecurrentLayer],
    precision: Precision,
    rates: Rates,
    parts: Mapping[str, Any],
) -> PlainDecoder:
    def stack(fed_size: int) -> Stack:
        sizes = config.num_decoder_layers, config.d_embedding + fed_size, config.d_hidden
        return Stack(make_layer, *sizes, rates.dropout)

    if config.attention == "none":
        return PlainDecoder(stack(0), rates.dropout)
    site = Site("decoder", "cross", config.num_decoder_layers, False, part=config.attention)
    make = registered("rnn_attention")[config.attention]
    attention = make(parts.get(config.attention), config, site, precision=precision)
    if config.wiring == "bahdanau":
        sizes = config.d_hidden + config.d_embedding + config.d_memory, config.d_output
        return BahdanauDecoder(stack(config.d_memory), rates.dropout, attention, *sizes, precision)
    has_state = type(attention).start is not RnnAttention.start
    if not config.input_feeding and has_state:
        problem = f"{config.attention} has a state, which its next step reads; use True, or model.wiring=bahdanau"
        raise ConfigError("model.input_feeding", problem)
    luong, fed_size = (InputFeedingDecoder, config.d_hidden) if config.input_feeding else (LuongDecoder, 0)
    return luong(stack(fed_size), rates.dropout, attention, config.d_hidden, config.d_memory, precision)


def _of_content(
    score: Callable[[RnnConfig, Precision], Score],
    window: Callable[[RnnConfig, Precision], nn.Module] = lambda config, precision: WholeSource(),
) -> Callable[..., RnnAttention]:
    return lambda settings, config, site, *, precision: ContentAttention(
        partial(score, config, precision), partial(window, config, precision), precision
    )


def _general(config: RnnConfig, precision: Precision) -> Score:
    return GeneralScore(config.d_hidden, config.d_memory, precision)


def _additive(config: RnnConfig, precision: Precision, is_normalized: bool = False) -> Score:
    return AdditiveScore(config.d_hidden, config.d_memory, config.d_attention, is_normalized, precision)


def _predicted(config: RnnConfig, precision: Precision) -> nn.Module:
    return PredictedWindow(config.attention_window, config.d_hidden, config.d_attention, precision)


def _location_sensitive(
    settings: None, config: RnnConfig, site: Site, *, precision: Precision, is_cumulative: bool = False
) -> RnnAttention:
    normalizers: dict[str, Normalizer] = {
        "softmax": masked_softmax,
        "sharpened": partial(sharpened_softmax, sharpness=config.attention_sharpness),
        "smoothed": smoothed_sigmoid,
    }
    return LocationSensitiveAttention(
        *(config.d_hidden, config.d_memory, config.d_attention, config.location_filters, config.location_taps),
        is_cumulative,
        normalizers[config.attention_weights],
        precision,
    )


register("rnn_attention", "dot")(_of_content(lambda config, precision: DotScore(False, precision)))
register("rnn_attention", "scaled_dot")(_of_content(lambda config, precision: DotScore(True, precision)))
register("rnn_attention", "general")(_of_content(_general))
register("rnn_attention", "additive")(_of_content(_additive))
register("rnn_attention", "normalized_additive")(_of_content(partial(_additive, is_normalized=True)))
# Luong's concat is Bahdanau's additive score with its matrix in two halves.
register("rnn_attention", "concat")(_of_content(_additive))
# The local ones use general, the best with local-p in Luong et al. 2015, section 5.3.
register("rnn_attention", "local_m")(
    _of_content(_general, lambda config, precision: MonotonicWindow(config.attention_window))
)
register("rnn_attention", "local_p")(_of_content(_general, _predicted))
register("rnn_attention", "location")(
    lambda settings, config, site, *, precision: LocationBasedAttention(
        config.d_hidden, config.max_attended_positions, precision
    )
)
register("rnn_attention", "location_sensitive")(_location_sensitive)
register("rnn_attention", "cumulative_location_sensitive")(
    lambda *arguments, **options: _location_sensitive(*arguments, is_cumulative=True, **options)
)
