"""Word alignments and their error rate."""

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.word_alignment import (
    best_links,
    read_gold,
    require_words,
    score_alignments,
    to_pharaoh,
)


def test_every_target_word_has_its_strongest_source_word():
    links = best_links(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]))
    assert links == {(1, 0), (0, 1), (1, 2)} and to_pharaoh(links) == "0-1 1-0 1-2"


def test_gold_has_sure_and_possible_links():
    first, second = read_gold(["1-1 2?3 2p1", ""], "gold", first_index=1)
    assert first == ({(0, 0)}, {(0, 0), (1, 2), (1, 0)}) and second == (set(), set())
    for line in ("0_0", "1-", "0-1-2", "a-b"):
        with pytest.raises(DataError, match=r"gold, line 2: .* is not a link"):
            read_gold(["0-0", line], "gold")
    with pytest.raises(DataError, match="counted from 1"):
        read_gold(["0-1"], "gold", first_index=1)


def test_literal_error_rate():
    """Two of three links are possible, one of them sure; two sure ones were wanted: 1 - (1 + 2) /
    (3 + 2)."""
    gold = read_gold(["0-0 1-1 2?2"], "gold")
    scores = score_alignments([frozenset({(0, 0), (2, 2), (3, 3)})], gold)
    assert (scores.error_rate, scores.precision, scores.recall) == pytest.approx((0.4, 2 / 3, 1 / 2))
    with pytest.raises(DataError, match="0 alignments but 1 lines"):
        score_alignments([], gold)


def test_gold_of_other_sentences_is_noticed():
    gold = read_gold(["0-0 1-2", "1-1"], "gold")
    require_words(gold, [(3, 2), (2, 2)], "gold")
    with pytest.raises(DataError, match=r"gold, line 2: .*--first_word=1"):
        require_words(gold, [(3, 2), (1, 2)], "gold")
