import json

from transformer_jax.data.statistics import StoreStatistics


def test_the_counts_of_a_small_split(store_of):
    store = store_of([("abc", "ba"), ("xa", "h"), ("dd d" * 2, "c")])
    statistics = store.statistics
    assert (statistics.read, statistics.kept, statistics.dropped) == (3, 3, {})
    assert statistics.source.tokens == 4 + 3 + 9 == store.source_lengths.sum()
    assert statistics.source.mean_length == 16 / 3
    assert statistics.source.longest == 9
    assert statistics.source.unknown_share == 1 / 16
    assert {bar: count for bar, count in statistics.source.histogram.items() if count} == {"1-5": 2, "6-10": 1}
    assert statistics.target.unknown_share == 0


def test_json_and_back(store_of):
    statistics = store_of([("abc", "ba"), ("", "b")], is_training=True).statistics
    assert StoreStatistics.from_json(json.loads(json.dumps(statistics.to_json()))) == statistics


def test_every_sentence_is_in_one_bar(store_of):
    lengths = [1, 5, 6, 10, 11, 20, 21, 400, 401, 2000]
    side = store_of([(length, 1) for length in lengths]).statistics.source
    assert sum(side.histogram.values()) == len(lengths)
    assert side.histogram["1-5"] == 2
    assert side.histogram["201-400"] == 1
    assert side.histogram["above 400"] == 2


def test_the_table_shows_what_was_left_out_and_the_lengths(store_of):
    table = store_of([("abc", "ba"), ("", "b")], is_training=True).statistics.table()
    assert "train: 1 pairs of 2" in table
    assert "1 of 2, empty source" in table
    assert "source: 4 tokens, 4.0 a sentence, at most 4" in table
    assert "0 of 2" not in table
