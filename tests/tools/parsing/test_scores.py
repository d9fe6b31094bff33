from collections import Counter

import pytest
from tools.parsing.random_trees import random_trees

from transformer_jax.config import DataError
from transformer_jax.tools.parsing.bracket_scores import (
    bracket_counts,
    compare_parsers,
    counts_of,
    f1_by_length,
    scores_of,
)
from transformer_jax.tools.parsing.trees import normalized, read_trees


@pytest.fixture
def tree(tmp_path):
    def read(text):
        (tmp_path / "tree.mrg").write_text(text)
        (located,) = read_trees(tmp_path / "tree.mrg")
        return normalized(located.tree, Counter())

    return read


def test_brackets_are_counted_as_evalb_does(tree):
    gold = tree("(S (NP (DT a) (NN dog)) (, ,) (VP (VBZ goes) (PRT (RP on))) (. .))")
    # Punctuation and TOP do not count, ADVP equals PRT, and the gold tree gives the parts of
    # speech.
    same = tree("(TOP (S (NP (XX a) (XX dog) (XX ,)) (VP (XX goes) (ADVP (XX on)) (XX .))))")
    assert bracket_counts(gold, same) == (4, 4, 4, 0, 1, 1, 1, 6)
    other = tree("(S (NP (XX a)) (VP (XX dog) (XX ,) (XX goes)) (NP (XX on) (XX .)))")
    # (VP dog goes) crosses NP and VP, but is one crossing bracket.
    assert bracket_counts(gold, other) == (1, 4, 4, 1, 0, 0, 1, 6)
    scores = scores_of(counts_of([gold, gold], [same, other]).sum(axis=0))
    assert scores == (62.5, 62.5, 62.5, 50.0, 0.5, 50.0)


def test_a_bracket_matches_at_most_one_other(tree):
    gold, once, thrice = (tree(f"(S {'(NP ' * depth}(NN a){')' * depth} (VB b))") for depth in (2, 1, 3))
    assert bracket_counts(gold, once)[:3] == (2, 3, 2)
    assert bracket_counts(gold, thrice)[:3] == (3, 3, 4)


def test_trees_of_other_words_are_refused(tree):
    with pytest.raises(DataError, match="different sentences"):
        bracket_counts(tree("(S (A b))"), tree("(S (A c))"))
    with pytest.raises(DataError, match="2 trees for 1 sentences"):
        counts_of([tree("(S (A b))")], [tree("(S (A b))")] * 2)


def test_f1_by_length_and_a_comparison_of_two_parsers():
    gold = random_trees(60, longest=30)
    flat = [str(tree._replace(children=tuple(tree.leaves()))) for tree in gold]
    texts = [str(tree) for tree in gold]
    lengths = f1_by_length(counts_of(gold, gold))
    assert sum(count for name, (count, _) in lengths.items() if name != "1-40") == 60
    assert lengths["1-40"] == (60, 100.0)
    (better,), (equal,) = (compare_parsers(flat, other, texts, resamples=200) for other in (texts, flat))
    assert better.second.value == 100.0 > better.first.upper
    assert better.p_value < 0.01 < equal.p_value == 1.0
    assert min(better.difference) > 0
