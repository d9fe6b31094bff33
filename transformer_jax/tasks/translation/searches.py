"""The search that the settings ask for: plain or diverse, in the whole vocabulary or among candidates."""

from functools import partial
from typing import Any

from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.beam_search import Rules, StepFunction
from transformer_jax.decoding.diverse_search import DIVERSE_SEARCH, DiverseRules
from transformer_jax.decoding.search_kind import BEAM_SEARCH, SearchKind
from transformer_jax.decoding.segmented_search import InitCache, SegmentedSearch, Step
from transformer_jax.layers.mesh_axes import constrain_rows
from transformer_jax.models.interface import Module, call
from transformer_jax.runtime.hardware import few_shapes_on
from transformer_jax.training.sharding import everywhere, on_own_rows, row_groups


def search_for(
    model: Module, config: DecodingConfig, mesh: Mesh, num_results: int, init_cache: InitCache
) -> SegmentedSearch:
    """A search for so many results; ``init_cache`` is that of the model, from source ids."""
    kind, rules = kind_by(config, num_results)
    return search_on(mesh, init_cache, partial(_step, model), rules, kind)


# On a CPU the products of few rows fill one core, or little more; other devices would wait while the host reads their results.
THREADS = 2


def search_on(mesh: Mesh, init_cache: InitCache, step: Step, rules: Any, kind: SearchKind) -> SegmentedSearch:
    """A search whose rows are shared by the devices of ``mesh``; on a single one two at a time."""
    # Several devices, which wait for each other, must run their programs in one order.
    threads = THREADS if mesh.size == 1 else 1
    return SegmentedSearch(
        init_cache,
        step,
        rules,
        kind=kind,
        row_multiple=row_groups(mesh),
        place=constrain_rows(mesh),
        on_own_rows=on_own_rows(mesh),
        whole=everywhere(mesh),
        threads=threads,
        few_shapes=few_shapes_on(mesh),
    )


def _step(model: Module, params: PyTree) -> StepFunction:
    return partial(call, model, params, "decode_step")


def kind_by(config: DecodingConfig, num_results: int) -> tuple[SearchKind, Rules | DiverseRules]:
    """Plain or diverse beam search, and its rules."""
    rules = Rules(config.beam_width, num_results, config.length_penalty, stop=config.stop)
    if config.diverse_groups == 1:
        return BEAM_SEARCH, rules
    return DIVERSE_SEARCH, DiverseRules(rules, config.diverse_groups, config.diversity)
