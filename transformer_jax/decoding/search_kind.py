"""The functions of a search that is done in segments."""

from collections.abc import Callable
from typing import Any, NamedTuple

from transformer_jax.decoding.beam_search import Hypotheses, advance_by_one, start_search


class SearchKind(NamedTuple):
    """A search of any kind as functions like ``start_search`` and ``advance_by_one``, and the hypotheses of a state.

    Its states have ``position``, ``is_done``, ``cache`` and the ids of ``alive`` and ``finished`` as ``BeamState``; every other
    leaf is [B, ...] or a scalar, whatever the room. The hypotheses are final where a sentence is done.
    """

    start: Callable[..., Any]
    choose: Callable[..., Any]
    results: Callable[..., Hypotheses]


BEAM_SEARCH = SearchKind(start_search, advance_by_one, lambda state, rules: state.finished)
