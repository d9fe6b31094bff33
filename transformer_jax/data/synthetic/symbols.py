"""Corpora of random symbols, for training in seconds: copy a sequence, or reverse it."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from transformer_jax.data.sentence_pairs import SentencePair, generated_fingerprint, require_split

GENERATED_SPLITS = ("train", "validation", "test")
EVALUATION_PAIRS = 500
EVALUATION_SEED = 0
SYMBOLS = "abcdefghijklmnopqrstuvwxyz"
_NUM_BUCKETS = 20


def held_out_split(text: str) -> str:
    """The split ``text`` belongs to, by a hash of it: 1/20 validation, 1/20 test, the rest training."""
    bucket = zlib.crc32(text.encode()) % _NUM_BUCKETS
    return {0: "validation", 1: "test"}.get(bucket, "train")


def split_size(split: str, training_pairs: int) -> int:
    """Number of pairs of a generated split: ``training_pairs``, or 500 for validation and for test."""
    require_split(split, GENERATED_SPLITS, "a generated corpus")
    return training_pairs if split == "train" else EVALUATION_PAIRS


def split_random(split: str, seed: int) -> random.Random:
    """The random numbers of a split. Validation and test do not depend on ``seed``: runs with two seeds stay comparable."""
    return random.Random(f"{split} {seed if split == 'train' else EVALUATION_SEED}")


@dataclass(frozen=True)
class SymbolCorpus:
    """Sequences of 1 to ``max_symbols`` letters of 26, separated by spaces, and the same sequence copied or reversed.

    ``reverse=True``: ``SentencePair("q a f", "f a q")``. No sequence occurs twice, neither in a split nor in two splits: a
    hash of the sequence says which split it belongs to. Pairs: ``training_pairs`` for train, 500 for validation and test.
    """

    training_pairs: int
    seed: int
    reverse: bool
    max_symbols: int = 20
    source_language: str = "symbols"
    target_language: str = "symbols"

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams the pairs of ``train``, ``validation`` or ``test``; raises DataError for another split."""
        remaining = split_size(split, self.training_pairs)
        rng = split_random(split, self.seed)
        return self._generate(split, remaining, rng)

    def _generate(self, split: str, remaining: int, rng: random.Random) -> Iterator[SentencePair]:
        seen: set[str] = set()
        while remaining:
            symbols = rng.choices(SYMBOLS, k=rng.randint(1, self.max_symbols))
            source = " ".join(symbols)
            if source in seen or held_out_split(source) != split:
                continue
            seen.add(source)
            remaining -= 1
            yield SentencePair(source, " ".join(reversed(symbols)) if self.reverse else source)

    def count(self, split: str) -> int:
        """Number of pairs of a split."""
        return split_size(split, self.training_pairs)

    def fingerprint(self, split: str) -> str:
        """Digest of the settings and the first pairs."""
        return generated_fingerprint(self, split, (self.training_pairs, self.seed, self.reverse, self.max_symbols))
