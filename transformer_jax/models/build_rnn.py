"""From settings to a recurrent encoder-decoder: every choice becomes an object here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn

from transformer_jax.config import Rates, RnnConfig
from transformer_jax.config.plugins import register, registered
from transformer_jax.layers.attention_scores import Normalizer, masked_softmax, sharpened_softmax, smoothed_sigmoid
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
    PredictedWindow,
    RnnAttention,
    Score,
    WholeSource,
)
from transformer_jax.layers.site import Site
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.rnn import Bridge, LastStates, RnnSeq2Seq, ScheduledSampling, TeacherForcing, ZeroStates
from transformer_jax.models.rnn_decoder import BahdanauDecoder, InputFeedingDecoder, LuongDecoder, PlainDecoder
from transformer_jax.models.rnn_layers import RnnEncoder, Stack
from transformer_jax.precision import POLICIES, Precision


def build_rnn(
    config: RnnConfig, source_vocabulary: int, target_vocabulary: int, rates: Rates, parts: Mapping[str, Any]
) -> RnnSeq2Seq:
    """The model of ``config`` for vocabularies of these sizes (the same size where embeddings are shared)."""
    precision = _precision(config)
    source, target, projection = tied_embeddings(
        config.tying,
        partial(Embedding, d_model=config.d_embedding, precision=precision),
        partial(Embedding, d_model=config.d_output, precision=precision),
        source_vocabulary,
        target_vocabulary,
    )
    bridges: dict[str, Callable[[], nn.Module]] = {
        "last": LastStates,
        "bridge": partial(Bridge, config.d_memory, config.d_hidden, precision),
        "zeros": ZeroStates,
    }
    return RnnSeq2Seq(
        source_embedding=source,
        target_embedding=target,
        projection=projection,
        encoder=RnnEncoder(
            make_layer=partial(_layer, config),
            num_layers=config.num_encoder_layers,
            input_size=config.d_embedding,
            hidden_size=config.d_hidden,
            is_bidirectional=config.bidirectional_encoder,
            dropout=rates.dropout,
        ),
        decoder=_decoder(config, rates, parts),
        bridge=bridges[config.decoder_start](),
        feeding=TeacherForcing() if rates.scheduled_sampling is None else ScheduledSampling(rates.scheduled_sampling),
        reverses_source=config.reverse_source,
        embedding_dropout=rates.embedding_dropout,
    )


def _precision(config: RnnConfig) -> Precision:
    """Gates and states of a recurrence are float32: only operands of products are rounded."""
    return POLICIES[config.compute_dtype].float32_output


def _layer(config: RnnConfig, input_size: int) -> RecurrentLayer:
    return RecurrentLayer(CELLS[config.cell](), input_size, config.d_hidden, _precision(config))


def _decoder(config: RnnConfig, rates: Rates, parts: Mapping[str, Any]) -> PlainDecoder:
    def make_stack(fed_size: int) -> Callable[[], Stack]:
        sizes = config.num_decoder_layers, config.d_embedding + fed_size, config.d_hidden
        return partial(Stack, partial(_layer, config), *sizes, rates.dropout)

    if config.attention == "none":
        return PlainDecoder(make_stack(0), rates.dropout)
    site = Site("decoder", "cross", config.num_decoder_layers, False, part=config.attention)
    make = partial(registered("rnn_attention")[config.attention], parts.get(config.attention), config, site)
    shared: dict[str, Any] = {
        "dropout": rates.dropout,
        "make_attention": partial(make, precision=_precision(config)),
        "hidden_size": config.d_hidden,
        "memory_size": config.d_memory,
        "precision": _precision(config),
    }
    if config.wiring == "bahdanau":
        shared |= {"embedding_size": config.d_embedding, "output_size": config.d_output}
        return BahdanauDecoder(make_stack(config.d_memory), **shared)
    if config.input_feeding:
        return InputFeedingDecoder(make_stack(config.d_hidden), **shared)
    return LuongDecoder(make_stack(0), **shared)


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
