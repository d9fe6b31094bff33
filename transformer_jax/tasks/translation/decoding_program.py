"""Beam search over a batch of sentences as pure functions, for preflight."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.beam_search import BeamState, Rules, advance_by_one, search_next, start_search
from transformer_jax.decoding.segmented_search import rooms_of
from transformer_jax.decoding.source_batches import rows_of_full_batch
from transformer_jax.models.interface import Module, call
from transformer_jax.runtime.hardware import batch_tokens_on, few_shapes_on
from transformer_jax.tasks.decoding_program import DecodingProgram
from transformer_jax.tasks.translation.translator import init_cache
from transformer_jax.training.sharding import on_own_rows, row_groups


def decoding_program(model: Module, config: DecodingConfig, width: int, mesh: Mesh) -> DecodingProgram:
    """The search of ``Translator`` over a full batch of the longest sentences, of ``width`` tokens; its beams are one group."""
    batch_tokens = batch_tokens_on(mesh, config.batch_tokens)
    rows, most = rows_of_full_batch(width, batch_tokens, row_groups(mesh)), width + config.max_extra_tokens
    rules = Rules(config.beam_width, 1, config.length_penalty, stop=config.stop)
    choose = on_own_rows(mesh)(partial(advance_by_one, rules=rules))

    def start(params: PyTree, source_ids: Int[Array, "B S"], room: int) -> BeamState:
        limits = jnp.full((rows,), most, jnp.int32)
        return start_search(init_cache(model, config.beam_width, params, source_ids, room), limits, room, rules)

    def step(params: PyTree, state: BeamState) -> BeamState:
        return search_next(partial(call, model, params, "decode_step"), state, choose)

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    return DecodingProgram(rows, width, config.beam_width, inputs, start, step, rooms_of(most, few_shapes_on(mesh)))
