"""The embedded default corpus: English sentences and their German translations, generated from a synchronous grammar.

A meaning is sampled (``grammar_sampling.py``) and put into both languages (``grammar_english.py``, ``grammar_german.py``) with
the words of ``lexicon.py``. Every English sentence has exactly one translation. Validation and test sentences each contain a
combination of words (adjective and noun, noun and verb, verb and object) that the training split never has, so that a model
which memorizes phrases fails on them, while one that learned the words and the rules translates them all.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from transformer_jax.config import ConfigError
from transformer_jax.data.sentence_pairs import SentencePair, generated_fingerprint
from transformer_jax.data.synthetic.grammar_english import english
from transformer_jax.data.synthetic.grammar_german import german
from transformer_jax.data.synthetic.grammar_sampling import MeaningSampler
from transformer_jax.data.synthetic.symbols import split_random, split_size

MIN_WORDS, MAX_WORDS = 3, 16
_REFERENCE_PAIRS, _REFERENCE_SEED, _COMMON = 8000, 0, 4


@cache
def common_words() -> frozenset[str]:
    """Words of both languages, as written, that occur at least 4 times in 8000 training pairs.

    Evaluation sentences use no others: in 20,000 training pairs of any seed a word of the test split then occurs, for all
    practical purposes always, so that what the test measures is new combinations of known words.
    """
    reference = GrammarCorpus(_REFERENCE_PAIRS, _REFERENCE_SEED).pairs("train")
    counts = Counter(word for pair in reference for text in pair for word in _words(text))
    return frozenset(word for word, count in counts.items() if count >= _COMMON)


def _words(text: str) -> list[str]:
    return text[:-1].replace(",", "").split()


@dataclass(frozen=True)
class GrammarCorpus:
    """English to German; ``training_pairs`` for train, 500 for validation and test, no sentence twice or in two splits.

    A pure function of ``seed``, which the validation and test splits do not depend on. English sentences have 3 to 16 words.
    """

    training_pairs: int
    seed: int
    source_language: str = "en"
    target_language: str = "de"

    def __post_init__(self) -> None:
        direction = self.source_language, self.target_language
        if direction != ("en", "de"):
            remedy = "the grammar corpus is English to German: set data.source_language=en, data.target_language=de"
            raise ConfigError(
                f"data.source_language, data.target_language: {direction[0]!r} to {direction[1]!r}; {remedy}"
            )

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams the pairs of ``train``, ``validation`` or ``test``; raises DataError for another split."""
        return self._generate(split, split_size(split, self.training_pairs))

    def _generate(self, split: str, remaining: int) -> Iterator[SentencePair]:
        sampler = MeaningSampler(split_random(split, self.seed), split)
        seen: set[str] = set()
        while remaining:
            meaning = sampler.sentence()
            if sampler.has_held_out != (split != "train"):
                continue
            source = english(meaning)
            if source in seen or not MIN_WORDS <= source.count(" ") + 1 <= MAX_WORDS:
                continue
            pair = SentencePair(source, german(meaning))
            if split != "train" and not common_words().issuperset(_words(source) + _words(pair.target)):
                continue
            seen.add(source)
            remaining -= 1
            yield pair

    def count(self, split: str) -> int:
        """Number of pairs of a split."""
        return split_size(split, self.training_pairs)

    def fingerprint(self, split: str) -> str:
        """Digest of the settings and the first pairs."""
        return generated_fingerprint(self, split, (self.training_pairs, self.seed))
