from transformer_jax.config import DataConfig
from transformer_jax.config.plugins import CORE
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.sentence_pairs import Corpus


def test_every_source_of_the_config_can_be_opened():
    for source in CORE["data_source"]["data.corpora"].split():
        where = {"train": "de=train.{en,de}"} if source == "mixture" else {"directory": "somewhere", "name": "some_set"}
        corpus = open_corpus(DataConfig(source=source, **where), seed=0)
        assert isinstance(corpus, Corpus)
