"""Translation of a batch as pure functions, for tools that compile it."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.beam_search import BeamState, Rules, plain_search, search_next, start_search
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.decoding.segmented_search import capacities_of
from transformer_jax.decoding.source_batches import rows_of_full_batch
from transformer_jax.models.interface import Module
from transformer_jax.runtime.hardware import batch_tokens_on, few_shapes_on
from transformer_jax.tasks.translation.translator import init_cache, step_of
from transformer_jax.training.sharding import row_groups, shard_map_rows


def translation_program(
    model: Module, decoding: DecodingConfig, width: int, mesh: Mesh, longest: int | None = None
) -> DecodingProgram:
    """Plain beam search over a full batch of sentences of ``width`` tokens, all translated to their length limit.

    ``longest``: maximum length of a sequence of the model; None: any.
    """
    batch_tokens, max_length = batch_tokens_on(mesh, decoding.batch_tokens), width + decoding.max_extra_tokens
    rows, max_length = rows_of_full_batch(width, batch_tokens, row_groups(mesh)), min(max_length, longest or max_length)
    rules = Rules(decoding.beam_width, 1, decoding.length_penalty, stop=decoding.stop)
    choose = shard_map_rows(mesh)(plain_search(rules).choose)

    def start(params: PyTree, source_ids: Int[Array, "B S"], capacity: int) -> BeamState:
        limits = jnp.full((rows,), max_length, jnp.int32)
        cache = init_cache(model, decoding.beam_width, params, source_ids, capacity)
        return start_search(cache, limits, capacity, rules=rules)

    def step(params: PyTree, state: BeamState) -> BeamState:
        return search_next(step_of(model, params), state, choose)

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    capacities = capacities_of(max_length, few_shapes_on(mesh))
    return DecodingProgram(rows, width, decoding.beam_width, inputs, start, step, capacities)
