"""Mixtures: corpora one after the other in one store, and the pairs of each in an epoch of training."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from transformer_jax.config import ConfigError, DataConfig, DataError
from transformer_jax.config.mixture import by_corpus, weights_of
from transformer_jax.data.orders import index_type, random_order
from transformer_jax.data.parallel_text import TextCorpus
from transformer_jax.data.sentence_pairs import Corpus, SentencePair, content_of, digest, require_split

LARGEST_EPOCH = 2**31 - 1
# First stream of random numbers for the pairs that an epoch repeats.
REPEATED_STREAM = 2**33


@dataclass(frozen=True)
class MixtureCorpus:
    """Corpora by name; a split is the concatenation of all corpora that have it."""

    corpora: Mapping[str, TextCorpus]
    source_language: str
    target_language: str
    seed: int

    def parts(self, split: str) -> dict[str, TextCorpus]:
        """The corpora that have a split; raises DataError where none has it."""
        splits = dict.fromkeys(each for corpus in self.corpora.values() for each in corpus.splits)
        require_split(split, tuple(splits), f"data.source=mixture of {', '.join(self.corpora)}")
        return {name: corpus for name, corpus in self.corpora.items() if split in corpus.splits}

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams all corpora in order."""
        return chain.from_iterable([corpus.pairs(split) for corpus in self.parts(split).values()])

    def count(self, split: str) -> int:
        """Number of lines."""
        return sum(corpus.count(split) for corpus in self.parts(split).values())

    def fingerprint(self, split: str) -> str:
        """Digest of the names of the corpora, and of their fingerprints."""
        return self._digest(split, lambda corpus: corpus.fingerprint(split))

    def content_fingerprint(self, split: str) -> str:
        """The same without the modification times of large files, so that copies of them have the same."""
        return self._digest(split, lambda corpus: content_of(corpus, split))

    def _digest(self, split: str, digest_of: Callable[[TextCorpus], str]) -> str:
        parts = self.parts(split).items()
        return digest(chain.from_iterable((name, digest_of(corpus)) for name, corpus in parts))


def parts_of(corpus: Corpus, split: str) -> Mapping[str, Corpus]:
    """The corpora of a split by name, in order; a corpus that is no mixture has an empty name."""
    return corpus.parts(split) if isinstance(corpus, MixtureCorpus) else {"": corpus}


def ranges_of(sizes: Mapping[str, int], limit: int = 0) -> list[tuple[str, int, int]]:
    """Name, first pair, and number of pairs (at most ``limit`` if above 0) of each corpus in one store."""
    begins = accumulate(sizes.values(), initial=0)
    return [(name, begin, min(size, limit or size)) for (name, size), begin in zip(sizes.items(), begins, strict=False)]


def times_an_epoch(sizes: Mapping[str, int], config: DataConfig) -> dict[str, float]:
    """The mean number of times that an epoch has a pair of each corpus; ``sizes``: their numbers of pairs.

    The share of a corpus of n pairs is proportional to its weight, or to n^(1/T) with the temperature T (Arivazhagan et al.
    2019, section 4.2). An epoch has each pair of at least one corpus exactly once, and no pair less often. Raises DataError at
    a corpus without pairs, and ConfigError where an epoch would be too long.
    """
    for name, size in sizes.items():
        if not size:
            raise DataError(f"data.train: no pair of the corpus {name!r} is left after the filters; look at its text")
    weights = weights_of(config.weights, by_corpus(config.train, "data.train"))
    rates = {
        name: (weights[name] if weights else size ** (1 / config.temperature)) / size for name, size in sizes.items()
    }
    least = min(rates.values())
    times = {name: rate / least for name, rate in rates.items()}
    total = sum(times[name] * size for name, size in sizes.items())
    if total > LARGEST_EPOCH:
        most = max(times, key=lambda name: times[name])
        key = "data.weights" if weights else "data.temperature"
        problem = f"an epoch would have {total:,.0f} pairs, each of {most!r} {times[most]:,.0f} times"
        raise ConfigError(f"{key}: {problem}; choose shares closer to the sizes of the corpora")
    return times


def pairs_of_epoch(sizes: Mapping[str, int], times: Mapping[str, float], seed: int) -> np.ndarray:
    """The pairs that an epoch has of corpora in one store, some of them several times.

    With 2.5 times an epoch each pair is there twice, and a random half of them a third time, the same in every epoch.
    """
    found = []
    for number, (name, begin, size) in enumerate(ranges_of(sizes)):
        whole, more = divmod(round(times[name] * size), size)
        repeated = random_order(size, seed, 0, REPEATED_STREAM + number)[:more]
        found += [np.tile(np.arange(size, dtype=repeated.dtype), whole) + begin, repeated + begin]
    return np.concatenate(found).astype(index_type(sum(sizes.values())))
