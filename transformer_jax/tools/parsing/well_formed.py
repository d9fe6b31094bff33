"""The constraint of parsing: trees over the words of the sentence, within the length limit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, NUM_SPECIAL_IDS, PAD_ID, Array, Bool, Int
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.constraints import Constraint
from transformer_jax.tools.parsing.parsing_settings import ParserConfig, TreebankConfig
from transformer_jax.tools.parsing.tokenizers import count_positions, word_starts
from transformer_jax.tools.parsing.trees import POSITIONS, is_position

MAX_DEPTH = 64
START, OPEN, CLOSE, WORD, POSITION, OTHER = range(6)


class Prefix(NamedTuple):
    """A hypothesis: the kind of its ``last`` symbol, and ``depth`` open constituents.

    It has ``written`` words of the sentence, and lacks ``words``. ``capacity`` tokens are left, EOS
    included. ``labels`` [B, W, 64] are ids of the opening symbols, or empty.
    """

    last: Int[Array, "B W"]
    depth: Int[Array, "B W"]
    words: Int[Array, "B W"]
    written: Int[Array, "B W"]
    capacity: Int[Array, "B W"]
    labels: Int[Array, "B W M"]


def well_formed(
    tokenizers: TokenizerPair, data: TreebankConfig, decoding: ParserConfig, longest: int | None
) -> Constraint:
    """Return the constraint for a linearization and the ``longest`` sequence of the model.

    A constituent has at least one word, the root has them all, and no more than 64 are open. The
    tokens that are left suffice for the shortest completion. A sentence whose length limit is too
    short for any tree gets no tree.
    """
    in_order = data.linearization == "in_order"
    symbols = tokenizers.target.pieces(range(NUM_SPECIAL_IDS, tokenizers.target.vocabulary_size))
    kind_of = {"(": OPEN, ")": CLOSE}
    kinds_of_symbols = [POSITION if is_position(piece) else kind_of.get(piece[0], WORD) for piece in symbols]
    kinds = np.array([OTHER] * NUM_SPECIAL_IDS + kinds_of_symbols)
    opening = {symbol[1:]: number for number, symbol in enumerate(symbols, NUM_SPECIAL_IDS) if symbol[0] == "("}
    # The opening symbols that closing symbols need.
    partners = np.array([-1] * NUM_SPECIAL_IDS + [opening.get(piece[1:], -1) for piece in symbols])
    has_labels, has_positions = data.linearization == "brackets", data.word_positions
    position_of = np.array([-1] * NUM_SPECIAL_IDS + [int(piece[1:]) if is_position(piece) else -1 for piece in symbols])
    num_positions = count_positions(tokenizers.target)
    begins_word = np.array(word_starts(tokenizers.source))

    def start(source_ids: Int[Array, "B S"], beam_width: int) -> Prefix:
        words = jnp.sum(jnp.asarray(begins_word)[source_ids], axis=1, dtype=jnp.int32)
        capacity = jnp.sum(source_ids != PAD_ID, axis=1, dtype=jnp.int32) + decoding.max_extra_tokens
        capacity = capacity if longest is None else jnp.minimum(capacity, longest)
        words, capacity = (jnp.tile(number[:, None], (1, beam_width)) for number in (words, capacity))
        zeros = jnp.zeros_like(words)
        return Prefix(
            zeros, zeros, words, zeros, capacity, jnp.zeros((*words.shape, MAX_DEPTH if has_labels else 0), jnp.int32)
        )

    def advance(state: Prefix, token_ids: Int[Array, "B W"]) -> Prefix:
        kind = jnp.asarray(kinds)[token_ids]
        opens, closes, is_word = (kind == other for other in (OPEN, CLOSE, WORD))
        is_top = jax.nn.one_hot(state.depth, state.labels.shape[2], dtype=bool)
        labels = jnp.where(is_top & opens[:, :, None], token_ids[:, :, None], state.labels)
        depth, words, written = state.depth + opens - closes, state.words - is_word, state.written + is_word
        after = Prefix(kind, depth, words, written, state.capacity - 1, labels)
        is_start = token_ids == BOS_ID
        return jax.tree.map(
            lambda old, new: jnp.where(jnp.expand_dims(is_start, tuple(range(2, old.ndim))), old, new), state, after
        )

    def allowed(state: Prefix) -> Bool[Array, "B W V"]:
        last, depth, words, written, capacity, labels = state
        is_start, is_closed, is_position = last == START, (depth == 0) & (last == CLOSE), last == POSITION
        needed = 2 * words - is_position if has_positions else words
        # The shortest completion, EOS included, must fit after another constituent is opened.
        is_deeper = (depth < MAX_DEPTH) & (capacity - 1 >= needed + depth + 2)
        if in_order:
            may_open = is_deeper & ((last == WORD) | (last == CLOSE))
            # If the last open constituent closes early, another goes around it.
            may_close = (depth > 0) & ((depth > 1) | (words == 0) | (capacity - 1 >= needed + 3))
            may_write = (words > 0) & (is_start | (depth > 0))
            may_end = is_closed & (words == 0)
        else:
            may_open = is_deeper & (words > 0) & (is_start | (depth > 0))
            may_close = (depth > 0) & (last != OPEN) & ((depth > 1) | (words == 0))
            may_write = (words > 0) & (depth > 0)
            may_end = is_closed
        never = jnp.zeros_like(may_end)
        may = [never, may_open & ~is_position, may_close & ~is_position, may_write, never, never]
        if has_positions:
            may[WORD], may[POSITION] = is_position, may_write & ~is_position
        is_allowed = jnp.stack(may, axis=2)[:, :, jnp.asarray(kinds)]
        if has_positions:
            is_next = jnp.asarray(position_of)[None, None] == (written % POSITIONS % num_positions)[:, :, None]
            is_allowed &= (jnp.asarray(kinds) != POSITION)[None, None] | is_next
        if has_labels:
            top = jnp.take_along_axis(labels, jnp.clip(depth - 1, 0)[:, :, None], axis=2)
            is_allowed &= (jnp.asarray(kinds) != CLOSE)[None, None] | (jnp.asarray(partners)[None, None] == top)
        return is_allowed.at[:, :, EOS_ID].set(may_end)

    return Constraint(start, advance, allowed)
