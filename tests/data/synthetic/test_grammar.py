import re

import pytest

from transformer_jax.data.synthetic import grammar
from transformer_jax.data.synthetic.grammar import GrammarCorpus

DIGESTS = {"train": "d6774b58359f3b8b", "validation": "5ea32b7802a8f8d0", "test": "44b9c145fe7167e6"}


@pytest.fixture(scope="module")
def splits():
    corpus = GrammarCorpus(8_000, seed=3)
    return {split: list(corpus.pairs(split)) for split in DIGESTS}


def test_sizes_lengths_and_words(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 8_000, "validation": 500, "test": 500}
    sources = [pair.source for pairs in splits.values() for pair in pairs]
    lengths = [len(source.split()) for source in sources]
    assert min(lengths) >= grammar.MIN_WORDS and max(lengths) <= grammar.MAX_WORDS
    assert len(set(sources)) == len(sources), "no sentence occurs twice in a split or in two"
    for side in (0, 1):
        train, *others = (set(re.findall(r"[\w']+", " ".join(pair[side] for pair in splits[name]))) for name in DIGESTS)
        assert set.union(*others) <= train and 500 < len(train) < 1300


def test_pure_function_of_the_seed_which_evaluation_ignores(splits):
    first = list(GrammarCorpus(50, 3).pairs("train"))
    assert first == list(GrammarCorpus(50, 3).pairs("train")) == splits["train"][:50]
    assert first != list(GrammarCorpus(50, 4).pairs("train"))
    assert list(GrammarCorpus(9, seed=4).pairs("test")) == splits["test"]


def test_the_sentences_of_earlier_versions_stay():
    """Stores and scores of old runs depend on them, as fingerprints of commit 912d005."""
    assert {split: GrammarCorpus(50, 0).fingerprint(split)[:16] for split in ("train", "validation", "test")} == DIGESTS
    assert GrammarCorpus(51, 0).fingerprint("train") != GrammarCorpus(50, 0).fingerprint("train")
