import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tools.parsing.random_trees import random_trees

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.tools.parsing.parsing_settings import LINEARIZATIONS, ParserConfig, TreebankConfig
from transformer_jax.tools.parsing.tokenizers import SymbolTokenizer
from transformer_jax.tools.parsing.trees import symbols_of, tree_of_symbols
from transformer_jax.tools.parsing.well_formed import well_formed


class Automaton:
    """The constraint for sentences of some numbers of words, with a function that says which
    sequences it accepts."""

    def __init__(self, linearization, extra, has_positions=False):
        closing = [")S", ")NP"] if linearization == "brackets" else [")"]
        self.extra = extra
        self.symbols = ["(S", "(NP", *closing, "XX", *(f"@{number}" for number in range(8 * has_positions))]
        words = SymbolTokenizer([f"w{number}" for number in range(8)])
        self.tokenizers = TokenizerPair(words, SymbolTokenizer(self.symbols))
        data = TreebankConfig(linearization=linearization, word_positions=has_positions)
        self.start, advance, allowed = well_formed(self.tokenizers, data, ParserConfig(max_extra_tokens=extra), None)

        def next_of(state, ids):
            state = advance(state, ids)
            return state, allowed(state)

        self.next = jax.jit(next_of)

    def accepts(self, sequences, num_words):
        """Whether each sequence of symbols, and EOS, is allowed token by token."""
        width = max(map(len, sequences)) + 1
        ids = np.full((len(sequences), width), PAD_ID)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence) + 1] = [*self.tokenizers.target.encode(" ".join(sequence)), EOS_ID]
        source = np.full((len(ids), max(num_words)), PAD_ID)
        for row, count in enumerate(num_words):
            source[row, :count] = 4
        state = self.start(jnp.asarray(source), 1)
        last, accepted = jnp.full((len(ids), 1), BOS_ID), np.ones(len(ids), bool)
        for column in ids.T:
            state, allowed = self.next(state, last)
            may_follow = np.take_along_axis(np.asarray(allowed)[:, 0], column[:, None], axis=1)[:, 0]
            accepted &= may_follow | (column == PAD_ID)
            last = jnp.asarray(column)[:, None]
        return accepted


@pytest.mark.parametrize("linearization", LINEARIZATIONS)
def test_exactly_the_linearizations_of_trees_are_allowed(linearization):
    automaton, words = Automaton(linearization, extra=300), ["w0", "w1"]
    # Labelled closing brackets make more sequences: a sixth of the longest is enough.
    longest = [*itertools.product(automaton.symbols, repeat=6)][:: 6 if linearization == "brackets" else 2]
    sequences = [
        symbols for length in range(6) for symbols in itertools.product(automaton.symbols, repeat=length)
    ] + longest

    def is_tree(sequence):
        repairs = Counter()
        tree = tree_of_symbols(sequence, words, linearization, repairs)
        return not +repairs and symbols_of(tree, linearization) == list(sequence)

    accepted = automaton.accepts(sequences, [len(words)] * len(sequences))
    assert accepted.any() and [*itertools.compress(sequences, accepted)] == [*filter(is_tree, sequences)]


def test_a_position_is_the_next_and_stands_before_a_word():
    automaton = Automaton("top_down", 300, has_positions=True)
    tree = ["(S", "@0", "XX", "(NP", "@1", "XX", ")", ")"]
    variants = [tree, [symbol for symbol in tree if symbol != "@1"], [*tree[:2], "@1", *tree[2:]]]
    for number, wrong in itertools.product((1, 4), ("@2", "XX", "@0", "@1")):
        variants.append([*tree[:number], wrong, *tree[number + 1 :]])
    accepted = automaton.accepts(variants, [2] * len(variants))
    assert [*itertools.compress(variants, accepted)] == [tree, tree, tree]


@pytest.mark.parametrize(
    ("linearization", "has_positions"), [("brackets", False), ("top_down", True), ("in_order", False)]
)
def test_every_tree_is_allowed_and_whatever_is_chosen_ends_within_the_limit(linearization, has_positions):
    automaton = Automaton(linearization, 6 + 2 * has_positions, has_positions)
    trees = [tree for tree in random_trees(60, longest=6) if "TOP" not in str(tree) and "VP" not in str(tree)]
    symbols = [symbols_of(tree, linearization, has_positions=has_positions) for tree in trees]
    counts = [len(tree.sentence.split()) for tree in trees]
    fits = [len(line) < count + automaton.extra for line, count in zip(symbols, counts, strict=True)]
    assert automaton.accepts(symbols, counts).tolist() == fits
    assert any(fits) and not all(fits)

    rows, generator = 64, np.random.default_rng(0)
    num_words = generator.integers(1, 5, rows)
    source = np.where(np.arange(5)[None] < num_words[:, None], 4, PAD_ID)
    state, last = automaton.start(jnp.asarray(source), 1), jnp.full((rows, 1), BOS_ID)
    has_ended = np.zeros(rows, bool)
    for step in range(4 + automaton.extra):
        state, allowed = automaton.next(state, last)
        options = np.asarray(allowed)[:, 0]
        running = ~has_ended & (step < num_words + automaton.extra)
        assert options[running].any(axis=1).all()
        chosen = np.argmax(options * generator.random(options.shape), axis=1)
        has_ended |= chosen == EOS_ID
        last = jnp.asarray(chosen)[:, None]
    assert has_ended.all()
