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
