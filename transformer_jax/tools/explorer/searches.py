"""The searches of one trained model, replayed and forced."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Int, PyTree
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.decoding.beam_search import Hypotheses, Rules, beam_search
from transformer_jax.decoding.search_trace import SearchTrace
from transformer_jax.decoding.segmented_search import InitCache, Step
from transformer_jax.tools.explorer.search_tree import Forced, SearchTree, build_tree

NUM_BEST = 10
ROWS_AT_ONCE = 8


class Searches:
    """Beam searches of one model by ``rules``; ``tokenizer`` is that of what it writes.

    ``inputs`` are arrays of one row; a hypothesis has at most ``limit`` tokens, and ``room`` is at least that. Compiled
    programs are kept.
    """

    def __init__(self, init_cache: InitCache, step: Step, rules: Rules, tokenizer: Tokenizer) -> None:
        self._rules, self._tokenizer = rules, tokenizer
        self._trace = SearchTrace(init_cache, step, rules, NUM_BEST)

        def forced(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], prefixes: Int[Array, "B P"], *, room: int
        ) -> Hypotheses:
            return beam_search(
                step(params),
                init_cache(params, inputs, room),
                max_lengths=limits,
                max_length=room,
                beam_width=rules.beam_width,
                length_penalty=rules.length_penalty,
                num_results=1,
                stop=rules.stop,
                forced=prefixes,
            )

        self._forced = jax.jit(forced, static_argnames="room")

    def tree(self, params: PyTree, inputs: PyTree, limit: int, room: int, alternatives: int) -> SearchTree:
        """The search for ``inputs``, and what it finds when forced to begin with the best ``alternatives`` to its result."""
        steps, _ = self._trace(params, inputs, limit, capacity=room)
        tree = build_tree(steps, self._piece, self._rules.beam_width, float(self._rules.length_penalty))
        prefixes = [prefix for prefix in tree.alternatives(alternatives) if _has_room(prefix, limit)]
        found: list[Forced] = []
        for start in range(0, len(prefixes), ROWS_AT_ONCE):
            some = prefixes[start : start + ROWS_AT_ONCE]
            found += self._beginning_with(params, inputs, limit, room, some, ROWS_AT_ONCE)
        return replace(tree, forced=found)

    def forced(self, params: PyTree, inputs: PyTree, limit: int, room: int, prefix: Sequence[int]) -> Forced:
        """The best hypothesis that begins with ``prefix``; raises DataError where none can."""
        require_prefix(prefix, self._tokenizer.vocabulary_size, limit)
        (found,) = self._beginning_with(params, inputs, limit, room, [tuple(prefix)], 1)
        return found

    def _beginning_with(
        self, params: PyTree, inputs: PyTree, limit: int, room: int, prefixes: list[tuple[int, ...]], rows: int
    ) -> list[Forced]:
        """The best hypothesis for each of ``prefixes``, in one program of ``rows`` rows."""
        repeated = jax.tree.map(lambda leaf: np.repeat(leaf, rows, axis=0), inputs)
        limits = np.where(np.arange(rows) < len(prefixes), limit, 0).astype(np.int32)
        ids = np.full((rows, room), PAD_ID, np.int32)
        for row, prefix in enumerate(prefixes):
            ids[row, : len(prefix)] = prefix
        found = jax.device_get(self._forced(params, repeated, limits, ids, room=room))
        return [self._described(prefix, found, row) for row, prefix in enumerate(prefixes)]

    def _described(self, prefix: tuple[int, ...], found: Hypotheses, row: int) -> Forced:
        tokens = found.ids[row, 0, : found.lengths[row, 0]].tolist()
        text = self._tokenizer.decode(tokens)
        return Forced(prefix, text, float(found.scores[row, 0]), float(found.log_probs[row, 0]))

    def _piece(self, token: int) -> str:
        return "</s>" if token == EOS_ID else self._tokenizer.pieces([token])[0]


def require_prefix(prefix: Sequence[int], vocabulary_size: int, limit: int) -> None:
    """Raises DataError unless a hypothesis of at most ``limit`` tokens can begin with ``prefix``."""
    for place, token in enumerate(prefix):
        if not 0 <= token < vocabulary_size or token in (PAD_ID, BOS_ID):
            raise DataError(f"prefix: token {place + 1}, {token}, cannot be chosen; ids go up to {vocabulary_size - 1}")
        if token == EOS_ID and place + 1 < len(prefix):
            raise DataError(f"prefix: token {place + 1} is the end of the sentence, and {prefix[place + 1]} follows it")
    if not _has_room(prefix, limit):
        raise DataError(f"prefix: after {len(prefix)} of at most {limit} tokens no room is left for the end")


def _has_room(prefix: Sequence[int], limit: int) -> bool:
    return len(prefix) < limit or (len(prefix) == limit and prefix[-1] == EOS_ID)
