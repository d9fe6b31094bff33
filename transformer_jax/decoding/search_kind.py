"""The functions of a search that is done in segments."""

from collections.abc import Callable
from typing import Any, NamedTuple

from transformer_jax.decoding.beam_search import Hypotheses, continue_search, start_search


class SearchKind(NamedTuple):
    """A search of any kind as functions like ``start_search`` and ``continue_search``, and the hypotheses of a state.

    Its states have ``position``, ``is_done``, ``cache`` and the ids of ``alive`` and ``finished`` as ``BeamState``; every other
    leaf is [B, ...] or a scalar, whatever the room. The hypotheses are final where a sentence is done.
    """

    start: Callable[..., Any]
    continue_until: Callable[..., Any]
    results: Callable[..., Hypotheses]


BEAM_SEARCH = SearchKind(start_search, continue_search, lambda state, rules: state.finished)
