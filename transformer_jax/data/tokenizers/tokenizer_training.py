"""Training of tokenizers on a sample of a corpus, by kind."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from transformer_jax.config import ConfigError, DataError, TokenizerConfig
from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.data.corpus_statistics import SAMPLED, side_text
from transformer_jax.data.sentence_pairs import Corpus, DocumentSource, SentencePair
from transformer_jax.data.tokenizers.files import LISTED_KINDS
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.data.tokenizers.subword import TooManyPieces, train_subword_tokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import Tokenizer, TokenizerPair

# Pieces that a vocabulary needs for a word, and in text without spaces for a character, above which
# it spells.
MAX_PIECES_A_WORD = 4.0
MAX_PIECES_A_CHARACTER = 1.5
# A million pairs of news have 250 million characters. Documents may be longer than the memory.
MAX_SAMPLED = 1_000_000_000
Example = TypeVar("Example")


def sample_examples(examples: Iterable[Example], count: int, seed: int) -> list[Example]:
    """Sample at most ``count`` examples of a stream uniformly (Vitter 1985, algorithm R).

    There are fewer if the first ``count`` examples have more than ``MAX_SAMPLED`` characters.
    """
    rng = random.Random(seed)
    sample: list[Example] = []
    characters = 0
    for index, example in enumerate(examples):
        if index < count:
            sample.append(example)
            characters += len(example) if isinstance(example, str) else sum(map(len, example))  # type: ignore[call-overload]
            if characters > MAX_SAMPLED:
                count = len(sample)
            continue
        slot = rng.randrange(index + 1)
        if slot < count:
            sample[slot] = example
    return sample


def train_tokenizers(
    settings: TokenizerConfig, corpus: Corpus, split: str, seed: int, tags: Sequence[str] = ()
) -> TokenizerPair:
    """Learn one vocabulary or two from ``settings.training_sentences`` pairs sampled over a split.

    ``bpe`` and ``unigram`` have exactly ``settings.vocabulary_size`` ids, and each of ``tags`` as
    one piece of the source vocabulary; ``word`` and ``character`` have at most that many ids.
    Raises ConfigError, with the possible sizes, if the text does not support the size, and
    DataError if a side of the sample has no text.
    """
    sample = sample_examples(corpus.pairs(split), settings.training_sentences, seed)
    sides = {"source": [pair.source for pair in sample], "target": [pair.target for pair in sample]}
    for side, sentences in sides.items():
        if not any(map(str.strip, sentences)):
            raise DataError(f"split {split!r}: no {side} sentence with any text to train the tokenizer on")
    if settings.joint:
        joint = train_tokenizer(settings, sides["source"] + sides["target"], tags)
        return TokenizerPair(joint, joint)
    separate = []
    for side, sentences in sides.items():
        try:
            separate.append(train_tokenizer(settings, sentences, tags if side == "source" else ()))
        except ConfigError as error:
            raise ConfigError(f"{error} (the {side} side alone, since tokenizer.joint=False)") from None
    return TokenizerPair(*separate)


def train_text_tokenizer(settings: TokenizerConfig, source: DocumentSource, split: str, seed: int) -> Tokenizer:
    """Learn a vocabulary from ``settings.training_sentences`` documents sampled over a split.

    Raises ConfigError, with the possible sizes, if the text does not support
    ``settings.vocabulary_size``, and DataError without text.
    """
    if settings.kind == "byte":
        return ByteTokenizer()
    texts = (document.text for document in source.documents(split))
    sample = sample_examples(texts, settings.training_sentences, seed)
    if not any(map(str.strip, sample)):
        raise DataError(f"split {split!r}: no document with any text to train the tokenizer on")
    return train_tokenizer(settings, sample)


def train_tokenizer(settings: TokenizerConfig, sentences: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """Learn one vocabulary. Raises ConfigError as ``train_tokenizers``, or for an imported kind."""
    if settings.kind == "byte":
        return ByteTokenizer()
    if settings.kind in LISTED_KINDS:
        return LISTED_KINDS[settings.kind].train(sentences, settings.vocabulary_size)
    if settings.kind not in SUBWORD_KINDS:
        problem = f"{settings.kind} comes with an imported model; adopt it with --config.init.run=RUN"
        raise ConfigError("tokenizer.kind", problem)
    coverage = settings.character_coverage
    if not coverage:
        coverage = 0.9995 if side_text(sentences[:: len(sentences) // SAMPLED + 1]).has_many_characters else 1.0
    return train_subword_tokenizer(settings.kind, sentences, settings.vocabulary_size, coverage, tags)


def train_supported(settings: TokenizerConfig, sentences: Sequence[str]) -> Tokenizer:
    """Train a tokenizer, with fewer pieces if the sentences support fewer."""
    try:
        return train_tokenizer(settings, sentences)
    except TooManyPieces as error:
        return train_tokenizer(replace(settings, vocabulary_size=error.supported), sentences)


def too_many_pieces(tokenizers: TokenizerPair, pairs: Sequence[SentencePair], languages: tuple[str, str]) -> list[str]:
    """Warn of sides with over four subwords a word, or 1.5 a character without spaces."""
    warnings = []
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
    for language, sentences, tokenizer in zip(languages, texts, tokenizers, strict=True):
        if tokenizer.kind not in SUBWORD_KINDS:
            continue
        side = side_text(sentences)
        pieces = sum(map(len, tokenizer.encode_batch(sentences, num_threads=1)))
        unit, number = ("word", side.words) if side.is_spaced else ("character", side.characters.total())
        ratio = pieces / max(number, 1)
        if ratio > (MAX_PIECES_A_WORD if side.is_spaced else MAX_PIECES_A_CHARACTER):
            warnings.append(
                f"WARNING: {ratio:.1f} pieces a {unit} of {language}: a vocabulary of {tokenizer.vocabulary_size:,} spells "
                "it in letters or bytes; raise tokenizer.vocabulary_size"
            )
    return warnings
