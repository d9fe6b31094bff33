"""From settings to a decoder-only Transformer."""

from functools import partial

import jax
import jax.numpy as jnp

from transformer_jax.array_types import EOS_ID, Array, PyTree
from transformer_jax.config import DecoderOnlyConfig, Rates, rates_of
from transformer_jax.models.build import ANY_DEVICES, EMBEDDINGS, Devices, layer_parts, positions_of, projection_of
from transformer_jax.models.decoder_only import DecoderOnly
from transformer_jax.models.layer_stack import STACKS
from transformer_jax.models.tying import tied_embeddings
from transformer_jax.sequence_types import Tokens


def build_decoder_only(
    config: DecoderOnlyConfig, vocabulary: int, on: Devices = ANY_DEVICES, rates: Rates | None = None
) -> DecoderOnly:
    """The model of ``config`` for a vocabulary of this size; ``rates`` stand for those of ``config``."""
    rates = rates_of(config) if rates is None else rates
    precision = on.policies[config.compute_dtype]
    make = partial(EMBEDDINGS[config.embedding], d_model=config.d_model, precision=precision, lookup=on.lookup)
    _, embedding, projection = tied_embeddings(config.tying, make, make, vocabulary, vocabulary)
    return DecoderOnly(
        embedding=embedding,
        projection=projection_of(config, projection),
        positions=positions_of(config),
        parts=layer_parts(config, on, rates),
        num_layers=config.num_layers,
        stack=STACKS[config.scan_layers, config.rematerialize],
        embedding_dropout=rates.embedding_dropout,
    )


def init_decoder_only(model: DecoderOnly, key: Array) -> PyTree:
    """Parameters before the first update; their shapes do not depend on the batch."""
    tokens = Tokens.from_ids(jnp.full((1, 2), EOS_ID, jnp.int32))
    return jax.jit(partial(model.init, train=False))(key, tokens)["params"]
