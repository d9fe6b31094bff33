"""The searches of one trained model, replayed and forced."""

from collections.abc import Sequence

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID, Array, Int, PyTree
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.decoding.beam_search import Hypotheses, Rules, beam_search
from transformer_jax.decoding.forced_prefix import cache_with_prefixes, padded_prefixes, step_after_prefix
from transformer_jax.decoding.search_trace import SearchTrace
from transformer_jax.decoding.segmented_search import InitCache, Step
from transformer_jax.explorer.search_tree import Forced, SearchTree, build_tree

NUM_BEST = 10
ROWS_AT_ONCE = 8


class Searches:
    """Beam searches of one model by ``rules``; ``tokenizer`` is that of what it writes.

    Compiled programs are kept.
    """

    def __init__(self, init_cache: InitCache, step: Step, rules: Rules, tokenizer: Tokenizer) -> None:
        self._rules, self._tokenizer = rules, tokenizer
        self._trace = SearchTrace(init_cache, step, rules, NUM_BEST)

        def forced(
            params: PyTree, inputs: PyTree, limits: Int[Array, "B"], prefixes: Int[Array, "B P"], *, room: int
        ) -> Hypotheses:
            cache = cache_with_prefixes(init_cache(params, inputs, room), prefixes)
            return beam_search(
                step_after_prefix(step(params)),
                cache,
                max_lengths=limits,
                max_length=room,
                beam_width=rules.beam_width,
                length_penalty=rules.length_penalty,
                num_results=1,
            )

        self._forced = jax.jit(forced, static_argnames="room")

    def tree(self, params: PyTree, inputs: PyTree, limit: int, room: int) -> SearchTree:
        """The search for ``inputs``, arrays of one row, of at most ``limit`` tokens; ``room`` is at least that."""
        steps, _ = self._trace(params, inputs, limit, room=room)
        return build_tree(steps, self._piece, self._rules.beam_width, float(self._rules.length_penalty))

    def forced(
        self, params: PyTree, inputs: PyTree, limit: int, room: int, prefixes: Sequence[Sequence[int]]
    ) -> list[Forced]:
        """The best hypothesis that begins with each of ``prefixes``; prefixes that leave no room for an end are left out."""
        possible = [tuple(prefix) for prefix in prefixes if len(prefix) < limit or tuple(prefix[-1:]) == (EOS_ID,)]
        repeated = jax.tree.map(lambda leaf: np.repeat(leaf, ROWS_AT_ONCE, axis=0), inputs)
        results = []
        for start in range(0, len(possible), ROWS_AT_ONCE):
            some = possible[start : start + ROWS_AT_ONCE]
            limits = np.where(np.arange(ROWS_AT_ONCE) < len(some), limit, 0).astype(np.int32)
            ids = padded_prefixes(some, ROWS_AT_ONCE, room)
            found = jax.device_get(self._forced(params, repeated, limits, ids, room=room))
            results += [self._described(prefix, found, row) for row, prefix in enumerate(some)]
        return results

    def _described(self, prefix: tuple[int, ...], found: Hypotheses, row: int) -> Forced:
        tokens = found.ids[row, 0, : found.lengths[row, 0]].tolist()
        text = self._tokenizer.decode(tokens)
        return Forced(prefix, text, float(found.scores[row, 0]), float(found.log_probs[row, 0]))

    def _piece(self, token: int) -> str:
        return "</s>" if token == EOS_ID else self._tokenizer.pieces([token])[0]
