"""From settings to a recurrent encoder-decoder: every choice becomes an object here."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn

from transformer_jax.config import Rates, RnnConfig
from transformer_jax.config.plugins import registered
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
from transformer_jax.models.interface import tied_embeddings
from transformer_jax.models.rnn import Bridge, LastStates, RnnSeq2Seq, ScheduledSampling, TeacherForcing, ZeroStates
from transformer_jax.models.rnn_decoder import BahdanauDecoder, InputFeedingDecoder, LuongDecoder, PlainDecoder
from transformer_jax.models.rnn_layers import RnnEncoder, Stack
from transformer_jax.precision import POLICIES, Precision


def build_rnn(config: RnnConfig, source_vocabulary: int, target_vocabulary: int, rates: Rates) -> RnnSeq2Seq:
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
        decoder=_decoder(config, rates),
        bridge=bridges[config.decoder_start](),
        feeding=TeacherForcing() if rates.scheduled_sampling is None else ScheduledSampling(rates.scheduled_sampling),
        reverses_source=config.reverse_source,
        embedding_dropout=rates.embedding_dropout,
    )


def _precision(config: RnnConfig) -> Precision:
    """Gates and states of a recurrence are float32: only operands of products are rounded."""
    return POLICIES[config.compute_dtype].wide


def _layer(config: RnnConfig, input_size: int) -> RecurrentLayer:
    return RecurrentLayer(CELLS[config.cell](), input_size, config.d_hidden, _precision(config))


def _decoder(config: RnnConfig, rates: Rates) -> PlainDecoder:
    def make_stack(fed_size: int) -> Callable[[], Stack]:
        sizes = config.num_decoder_layers, config.d_embedding + fed_size, config.d_hidden
        return partial(Stack, partial(_layer, config), *sizes, rates.dropout)

    if config.attention == "none":
        return PlainDecoder(make_stack(0), rates.dropout)
    plugins = registered("rnn_attention")
    make_attention = partial(plugins[config.attention], config) if config.attention in plugins else _attention(config)
    shared: dict[str, Any] = {
        "dropout": rates.dropout,
        "make_attention": make_attention,
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


def _attention(config: RnnConfig) -> Callable[[], RnnAttention]:
    precision, sizes = _precision(config), (config.d_hidden, config.d_memory)
    general = partial(GeneralScore, *sizes, precision)
    additive = partial(AdditiveScore, *sizes, config.d_attention, precision=precision)
    scores: dict[str, Callable[[], Score]] = {
        "dot": partial(DotScore, precision=precision),
        "scaled_dot": partial(DotScore, is_scaled=True, precision=precision),
        "general": general,
        "additive": additive,
        "normalized_additive": partial(additive, is_normalized=True),
        # Luong's concat is Bahdanau's additive score with its matrix in two halves.
        "concat": additive,
    }
    # The local ones use general, the best with local-p in Luong et al. 2015, section 5.3.
    windows: dict[str, Callable[[], nn.Module]] = {
        "local_m": partial(MonotonicWindow, config.attention_window),
        "local_p": partial(PredictedWindow, config.attention_window, config.d_hidden, config.d_attention, precision),
    }
    normalizers: dict[str, Normalizer] = {
        "softmax": masked_softmax,
        "sharpened": partial(sharpened_softmax, sharpness=config.attention_sharpness),
        "smoothed": smoothed_sigmoid,
    }
    location_sensitive = partial(
        LocationSensitiveAttention,
        *sizes,
        config.d_attention,
        num_filters=config.location_filters,
        filter_taps=config.location_taps,
        normalize=normalizers[config.attention_weights],
        precision=precision,
    )
    attentions: dict[str, Callable[[], RnnAttention]] = {
        **{name: partial(ContentAttention, score, WholeSource, precision) for name, score in scores.items()},
        **{name: partial(ContentAttention, general, window, precision) for name, window in windows.items()},
        "location": partial(LocationBasedAttention, config.d_hidden, config.max_attended_positions, precision),
        "location_sensitive": location_sensitive,
        "cumulative_location_sensitive": partial(location_sensitive, is_cumulative=True),
    }
    return attentions[config.attention]
