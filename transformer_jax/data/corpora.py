"""Opens the source of sentence pairs that a config names."""

from collections.abc import Callable

from transformer_jax.config import DataConfig
from transformer_jax.config.plugins import registered
from transformer_jax.data.named_files import NamedFiles
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.data.synthetic.grammar import GrammarCorpus
from transformer_jax.data.synthetic.symbols import SymbolCorpus
from transformer_jax.data.text_files import TextCorpus
from transformer_jax.data.tfds_source import TfdsCorpus


def _grammar(config: DataConfig, seed: int) -> Corpus:
    return GrammarCorpus(config.generated_pairs, seed, config.source_language, config.target_language)


def _copy(config: DataConfig, seed: int) -> Corpus:
    return SymbolCorpus(config.generated_pairs, seed, reverse=False, max_symbols=config.generated_words)


def _reverse(config: DataConfig, seed: int) -> Corpus:
    return SymbolCorpus(config.generated_pairs, seed, reverse=True, max_symbols=config.generated_words)


def _text(config: DataConfig, seed: int) -> Corpus:
    place = config.directory, config.source_language, config.target_language
    named = [(name, files) for name, files in config.files().items() if files]
    if not named and not config.held_out:
        return TextCorpus(*place)
    splits = config.train_split, config.validation_split, config.test_split
    return NamedFiles(*place, tuple(named), *splits, config.held_out, seed)


def _tfds(config: DataConfig, seed: int) -> Corpus:
    del seed
    return TfdsCorpus(config.name, config.directory, config.source_language, config.target_language, config.download)


CORPORA: dict[str, Callable[[DataConfig, int], Corpus]] = {
    "grammar": _grammar,
    "copy": _copy,
    "reverse": _reverse,
    "text": _text,
    "tfds": _tfds,
}


def open_corpus(config: DataConfig, seed: int) -> Corpus:
    """The corpus of ``config.source``. ``seed`` only matters to generated training sentences. Reads no data yet."""
    corpus: Corpus = (CORPORA | registered("data_source"))[config.source](config, seed)
    return corpus
