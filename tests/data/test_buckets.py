import itertools

import numpy as np
import pytest

from transformer_jax.data.buckets import choose_buckets, rows_of


def positions(selection):
    return sum(bucket.num_batches * bucket.rows * (bucket.source_width + bucket.target_width) for bucket in selection)


def fewest_positions(source_lengths, target_lengths, num_buckets, tokens, row_multiple):
    """By trying every choice of widths."""
    longer = -(-np.maximum(source_lengths, target_lengths) // 4) * 4
    *inner, last = np.unique(longer).tolist()
    fewest = np.inf
    for count in range(min(num_buckets, len(inner) + 1)):
        for selection in itertools.combinations(inner, count):
            total = 0
            for low, high in itertools.pairwise([0, *selection, last]):
                members = (longer > low) & (longer <= high)
                rows = rows_of(high, tokens, row_multiple)
                widths = [-(-int(side[members].max()) // 4) * 4 for side in (source_lengths, target_lengths)]
                total += -(-int(members.sum()) // rows) * rows * sum(widths)
            fewest = min(fewest, total)
    return fewest


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("num_buckets", [1, 3, 20])
@pytest.mark.parametrize("longest_source", [8, 36])
def test_no_other_widths_have_fewer_positions(seed, num_buckets, longest_source):
    generator = np.random.default_rng(seed)
    number = 10 ** generator.integers(1, 4)
    source, target = generator.integers(1, longest_source, number), generator.integers(1, 36, number)
    selection = choose_buckets(np.stack([source, target]), num_buckets, 256, 4, 4)
    assert len(selection) <= num_buckets
    assert positions(selection) == fewest_positions(source, target, num_buckets, 256, 4)


def test_a_literal_choice():
    lengths = np.array([3] * 64 + [16] * 16)
    one, two = choose_buckets(np.stack([lengths, lengths]), 2, 64, 8, 4)
    assert tuple(one) == (16, 4, 4, 4, 4)
    assert tuple(two) == (8, 16, 16, 16, 2), "4 rows would be 64 tokens, but 8 is the least"
