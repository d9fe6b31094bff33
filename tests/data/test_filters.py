import pytest

from transformer_jax.data.filters import MAX_LINE_BYTES, is_overlong

MANY = "a b" * 400_000


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "b"), "empty source"),
        (("a", " "), "empty target"),
        (("ab", "ab"), "target is the source"),
        (("abcdef", "bcdef"), "source above 5 tokens"),
        (("abcde", "bcdefgh"), "target above 6 tokens"),
        (("abcde", "b"), "one side above 2 times the other"),
        ((MANY, "b"), "a line above 1,000,000 bytes"),
        (("b", MANY), "a line above 1,000,000 bytes"),
    ],
)
def test_each_reason_is_counted(store_of, pair, reason):
    good = ("abcde", "bcdefg")
    store = store_of(
        [good, pair, good], is_training=True, max_source_tokens=5, max_target_tokens=6, max_length_ratio=2.0
    )
    assert store.statistics.read == 3
    assert store.statistics.kept == store.num_pairs == 2
    assert {name: count for name, count in store.statistics.dropped.items() if count} == {reason: 1}
    assert f"left out: 1 of 3, {reason}" in store.statistics.table()


@pytest.mark.parametrize("source", ["copy", "reverse", "grammar"])
def test_a_generated_target_may_be_the_source(store_of, source):
    assert store_of([("ab", "ab")], is_training=True, source=source).num_pairs == 1


def test_a_pair_counts_once(store_of):
    store = store_of([("", ""), ("a", "b")], is_training=True)
    assert sum(store.statistics.dropped.values()) == 1


def test_bytes_are_counted_not_characters():
    assert not is_overlong("a" * MAX_LINE_BYTES)
    assert is_overlong("a" * (MAX_LINE_BYTES + 1))
    assert not is_overlong("\u00e4" * (MAX_LINE_BYTES // 2))
    assert is_overlong("\u00e4" * (MAX_LINE_BYTES // 2 + 1))


def test_an_overlong_line_is_not_tokenized(store_of, letter_tokenizers, monkeypatch):
    longest = 0

    def encode_batch(self, texts, num_threads=-1):
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return [[4] for _ in texts]

    monkeypatch.setattr(type(letter_tokenizers.source), "encode_batch", encode_batch)
    store_of([("ab", "b"), (MANY, "b")], is_training=True)
    assert longest == 2
