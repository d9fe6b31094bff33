"""Corpora of random symbols, to copy or reverse; a model learns them in seconds."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import islice

from transformer_jax.data.sentence_pairs import SentencePair, generated_fingerprint, require_split
from transformer_jax.registry.plugins import register

EVALUATION_PAIRS = 500
SYMBOLS = "abcdefghijklmnopqrstuvwxyz"


def held_out_split(text: str) -> str:
    """Return the split of ``text`` by its hash: 1/20 validation, 1/20 test, the rest training."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % 20, "train")


def split_random(split: str, seed: int) -> random.Random:
    """Return random numbers of a split. Only training depends on ``seed``: runs stay comparable."""
    return random.Random(f"{split} {seed if split == 'train' else 0}")


@dataclass(frozen=True)
class GeneratedCorpus:
    """Distinct pairs: ``training_pairs``, which depend on ``seed``, and 500 each for evaluation."""

    training_pairs: int
    seed: int

    def generated(self, split: str) -> Iterator[SentencePair]:
        """Yield pairs of a split without end."""
        raise NotImplementedError

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Yield ``train``, ``validation`` or ``test``, or raise DataError for another split."""
        return islice(self.generated(split), self.count(split))

    def count(self, split: str) -> int:
        require_split(split, ("train", "validation", "test"), "a generated corpus")
        return self.training_pairs if split == "train" else EVALUATION_PAIRS

    def fingerprint(self, split: str) -> str:
        """Return a digest of the settings, without the languages, and of the first pairs."""
        return generated_fingerprint(self, split, astuple(self)[:-2])


@dataclass(frozen=True)
class SymbolCorpus(GeneratedCorpus):
    """Sequences of 1 to ``max_symbols`` letters; the target is the source, or ``reverse`` of it.

    Example: ``SentencePair("q a f", "f a q")``. All sequences are distinct over all splits: the
    hash of a sequence chooses its split.
    """

    reverse: bool
    max_symbols: int = 20
    source_language: str = "symbols"
    target_language: str = "symbols"

    def generated(self, split: str) -> Iterator[SentencePair]:
        rng, seen = split_random(split, self.seed), set[str]()
        while True:
            symbols = rng.choices(SYMBOLS, k=rng.randint(1, self.max_symbols))
            source = " ".join(symbols)
            if source not in seen and held_out_split(source) == split:
                seen.add(source)
                yield SentencePair(source, " ".join(reversed(symbols)) if self.reverse else source)


register("data_source", "copy")(
    lambda data, seed: SymbolCorpus(data.generated_pairs, seed, False, data.generated_words)
)
register("data_source", "reverse")(
    lambda data, seed: SymbolCorpus(data.generated_pairs, seed, True, data.generated_words)
)
