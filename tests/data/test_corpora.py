from transformer_jax.config import DataConfig
from transformer_jax.config.checks import declared
from transformer_jax.data.corpora import CORPORA, open_corpus
from transformer_jax.data.sentence_pairs import Corpus


def test_every_source_of_the_config_can_be_opened():
    sources = declared(DataConfig)["source"].choices
    assert set(CORPORA) == set(sources)
    for source in sources:
        corpus = open_corpus(DataConfig(source=source, directory="somewhere", name="some_set"), seed=0)
        assert isinstance(corpus, Corpus)


def test_generated_sources_follow_size_and_seed():
    for source in ("grammar", "copy", "reverse"):
        config = DataConfig(source=source, generated_pairs=7)
        first, second = (list(open_corpus(config, seed).pairs("train")) for seed in (0, 1))
        assert len(first) == len(second) == 7
        assert first != second
