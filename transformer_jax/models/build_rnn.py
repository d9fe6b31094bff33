"""From settings to a recurrent encoder-decoder: every choice becomes an object here."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn

from transformer_jax.config import Rates, RnnConfig
from transformer_jax.config.plugins import registered
from transformer_jax.layers.attention_scores import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    Normalizer,
    masked_softmax,
    sharpened_softmax,
    smoothed_sigmoid,
)
from transformer_jax.layers.attention_windows import MonotonicWindow, PredictedWindow, WholeSource
from transformer_jax.layers.embedding import Embedding
from transformer_jax.layers.recurrent import CELLS, RecurrentLayer
from transformer_jax.layers.rnn_attention import (
    ContentAttention,
    LocationBasedAttention,
    LocationSensitiveAttention,
    RnnAttention,
)
from transformer_jax.models.rnn import Bridge, LastStates, RnnSeq2Seq, ScheduledSampling, TeacherForcing, ZeroStates
from transformer_jax.models.rnn_decoder import (
    BahdanauDecoder,
    Decoder,
    InputFeedingDecoder,
    LuongDecoder,
    PlainDecoder,
)
from transformer_jax.models.rnn_encoder import RnnEncoder
from transformer_jax.models.rnn_stack import Stack
from transformer_jax.models.tying import tied_embeddings
from transformer_jax.precision import POLICIES, Precision


def _precision(config: RnnConfig) -> Precision:
    """Gates and states of a recurrence are float32: only operands of products are rounded."""
    return POLICIES[config.compute_dtype].wide


def build_rnn(config: RnnConfig, source_vocabulary: int, target_vocabulary: int, rates: Rates) -> RnnSeq2Seq:
    """The model of ``config`` for vocabularies of these sizes (the same size where embeddings are shared)."""
    make_layer = partial(_layer, config)
    source, target, projection = tied_embeddings(
        config.tying,
        partial(Embedding, d_model=config.d_embedding, precision=_precision(config)),
        partial(Embedding, d_model=config.d_output, precision=_precision(config)),
        source_vocabulary,
        target_vocabulary,
    )
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
        decoder=_decoder(config, rates),
        bridge=BRIDGES[config.decoder_start](config),
        feeding=TeacherForcing() if rates.scheduled_sampling is None else ScheduledSampling(rates.scheduled_sampling),
        reverses_source=config.reverse_source,
        embedding_dropout=rates.embedding_dropout,
    )


def _layer(config: RnnConfig, input_size: int) -> RecurrentLayer:
    return RecurrentLayer(CELLS[config.cell](), input_size, config.d_hidden, _precision(config))


BRIDGES: dict[str, Callable[[RnnConfig], nn.Module]] = {
    "last": lambda config: LastStates(),
    "bridge": lambda config: Bridge(config.d_memory, config.d_hidden, _precision(config)),
    "zeros": lambda config: ZeroStates(),
}


def _decoder(config: RnnConfig, rates: Rates) -> Decoder:
    make_stack, dropout = partial(_stack, config, rates), rates.dropout
    if config.attention == "none":
        return PlainDecoder(make_stack, config.d_embedding, dropout)
    make_attention = partial((ATTENTIONS | registered("rnn_attention"))[config.attention], config)
    sizes = config.d_embedding, config.d_hidden, config.d_memory
    if config.wiring == "bahdanau":
        return BahdanauDecoder(make_stack, make_attention, *sizes, config.d_output, dropout, _precision(config))
    decoder = InputFeedingDecoder if config.input_feeding else LuongDecoder
    return decoder(make_stack, make_attention, *sizes, dropout, _precision(config))


def _stack(config: RnnConfig, rates: Rates, input_size: int) -> Stack:
    return Stack(partial(_layer, config), config.num_decoder_layers, input_size, config.d_hidden, rates.dropout)


def _dot(config: RnnConfig, *, is_scaled: bool = False) -> DotScore:
    return DotScore(is_scaled, _precision(config))


def _general(config: RnnConfig) -> GeneralScore:
    return GeneralScore(config.d_hidden, config.d_memory, _precision(config))


def _additive(config: RnnConfig, *, is_normalized: bool = False) -> AdditiveScore:
    return AdditiveScore(config.d_hidden, config.d_memory, config.d_attention, is_normalized, _precision(config))


def _global(score: Callable[[RnnConfig], nn.Module], config: RnnConfig) -> RnnAttention:
    return ContentAttention(partial(score, config), WholeSource, _precision(config))


def _local_m(config: RnnConfig) -> RnnAttention:
    window = partial(MonotonicWindow, config.attention_window)
    return ContentAttention(partial(_general, config), window, _precision(config))


def _local_p(config: RnnConfig) -> RnnAttention:
    sizes = config.attention_window, config.d_hidden, config.d_attention
    window = partial(PredictedWindow, *sizes, _precision(config))
    return ContentAttention(partial(_general, config), window, _precision(config))


def _location(config: RnnConfig) -> RnnAttention:
    return LocationBasedAttention(config.d_hidden, config.max_attended_positions, _precision(config))


def _location_sensitive(config: RnnConfig, *, is_cumulative: bool = False) -> RnnAttention:
    sizes = config.d_hidden, config.d_memory, config.d_attention
    normalize: dict[str, Normalizer] = {
        "softmax": masked_softmax,
        "sharpened": partial(sharpened_softmax, sharpness=config.attention_sharpness),
        "smoothed": smoothed_sigmoid,
    }
    return LocationSensitiveAttention(
        *sizes,
        num_filters=config.location_filters,
        filter_taps=config.location_taps,
        is_cumulative=is_cumulative,
        normalize=normalize[config.attention_weights],
        precision=_precision(config),
    )


# Luong's concat is Bahdanau's additive score with the halves of its matrix apart; the local ones use general, the best with
# local-p in Luong et al. 2015, section 5.3.
ATTENTIONS: dict[str, Callable[[RnnConfig], RnnAttention]] = {
    "dot": partial(_global, _dot),
    "scaled_dot": partial(_global, partial(_dot, is_scaled=True)),
    "general": partial(_global, _general),
    "additive": partial(_global, _additive),
    "normalized_additive": partial(_global, partial(_additive, is_normalized=True)),
    "concat": partial(_global, _additive),
    "location": _location,
    "local_m": _local_m,
    "local_p": _local_p,
    "location_sensitive": _location_sensitive,
    "cumulative_location_sensitive": partial(_location_sensitive, is_cumulative=True),
}
