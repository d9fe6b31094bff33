"""Corpora of random symbols, to copy or reverse; a model learns them in seconds."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from transformer_jax.data.sentence_pairs import SentencePair, generated_fingerprint, require_split

EVALUATION_PAIRS = 500
SYMBOLS = "abcdefghijklmnopqrstuvwxyz"


def held_out_split(text: str) -> str:
    """The split of ``text`` by its hash: 1/20 validation, 1/20 test, the rest training."""
    return {0: "validation", 1: "test"}.get(zlib.crc32(text.encode()) % 20, "train")


def split_size(split: str, training_pairs: int) -> int:
    """Number of pairs of a generated split; raises DataError for an unknown split."""
    require_split(split, ("train", "validation", "test"), "a generated corpus")
    return training_pairs if split == "train" else EVALUATION_PAIRS


def split_random(split: str, seed: int) -> random.Random:
    """Random numbers of a split. Validation and test do not depend on ``seed``, so that runs stay comparable."""
    return random.Random(f"{split} {seed if split == 'train' else 0}")


@dataclass(frozen=True)
class SymbolCorpus:
    """Sequences of 1 to ``max_symbols`` letters, separated by spaces; the target is the source, or with ``reverse`` reversed.

    Example: ``SentencePair("q a f", "f a q")``. All sequences are distinct over all splits: the hash of a sequence chooses its
    split. There are ``training_pairs`` for training, and 500 each for validation and test.
    """

    training_pairs: int
    seed: int
    reverse: bool
    max_symbols: int = 20
    source_language: str = "symbols"
    target_language: str = "symbols"

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams ``train``, ``validation`` or ``test``; raises DataError for another split."""
        return self._generate(split, split_size(split, self.training_pairs))

    def _generate(self, split: str, remaining: int) -> Iterator[SentencePair]:
        rng, seen = split_random(split, self.seed), set[str]()
        while remaining:
            symbols = rng.choices(SYMBOLS, k=rng.randint(1, self.max_symbols))
            source = " ".join(symbols)
            if source in seen or held_out_split(source) != split:
                continue
            seen.add(source)
            remaining -= 1
            yield SentencePair(source, " ".join(reversed(symbols)) if self.reverse else source)

    def count(self, split: str) -> int:
        """Number of pairs."""
        return split_size(split, self.training_pairs)

    def fingerprint(self, split: str) -> str:
        """Digest of the settings and the first pairs."""
        return generated_fingerprint(self, split, (self.training_pairs, self.seed, self.reverse, self.max_symbols))
