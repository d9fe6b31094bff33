import pytest

from transformer_jax.data.synthetic.symbols import SymbolCorpus


@pytest.mark.parametrize("reverse", [False, True])
def test_target_is_the_source_or_its_reverse(reverse):
    pairs = list(SymbolCorpus(300, 0, reverse, max_symbols=12).pairs("train"))
    assert len(pairs) == 300
    assert {len(pair.source.split()) for pair in pairs} == set(range(1, 13))
    for source, target in pairs:
        assert target.split() == (source.split()[::-1] if reverse else source.split())


def test_no_sequence_is_in_two_splits_and_only_training_depends_on_the_seed():
    corpus = SymbolCorpus(2000, 0, reverse=True)
    sources = [pair.source for split in ("train", "validation", "test") for pair in corpus.pairs(split)]
    assert len(sources) == len(set(sources)) == 3000
    first, second = SymbolCorpus(20, 0, False), SymbolCorpus(20, 1, False)
    assert list(first.pairs("train")) == list(first.pairs("train"))
    assert list(first.pairs("train")) != list(second.pairs("train"))
    assert list(first.pairs("test")) == list(second.pairs("test"))
