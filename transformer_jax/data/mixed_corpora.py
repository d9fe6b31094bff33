"""Mixtures: corpora one after the other in one store, and their pairs in an epoch of training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, TypeVar

import numpy as np

from transformer_jax.config import ConfigError, DataConfig, DataError
from transformer_jax.config.data import SourceConfig
from transformer_jax.config.mixture import by_corpus, weights_of
from transformer_jax.data.orders import index_type, random_order
from transformer_jax.data.parallel_text import TextCorpus, text_corpus
from transformer_jax.data.sentence_pairs import FileSource, SentencePair, digest, require_split
from transformer_jax.registry.plugins import register

# First stream of random numbers for the pairs that an epoch repeats.
REPEATED_STREAM = 2**33
LARGEST_EPOCH = 2**31 - 1

Source = TypeVar("Source")


@dataclass(frozen=True)
class Mixture(FileSource):
    """Sources of text by name. A split concatenates the splits of this name of all sources."""

    corpora: Mapping[str, Any]

    def parts(self, split: str) -> dict[str, Any]:
        """Return the corpora that have a split, or raise DataError if there is none."""
        splits = tuple(dict.fromkeys(name for corpus in self.corpora.values() for name in corpus.splits))
        require_split(split, splits, f"data.source=mixture of {', '.join(self.corpora)}")
        return {name: corpus for name, corpus in self.corpora.items() if split in corpus.splits}

    def fingerprint(self, split: str, *, with_time: bool = True) -> str:
        parts = self.parts(split).items()
        fingerprints = ((name, part.fingerprint(split, with_time=with_time)) for name, part in parts)
        return digest(chain.from_iterable(fingerprints))


@dataclass(frozen=True)
class MixtureCorpus(Mixture):
    source_language: str
    target_language: str
    seed: int

    def parts(self, split: str) -> dict[str, TextCorpus]:
        """Return the corpora that have a split, or raise DataError with the way to name one."""
        if not any(split in corpus.splits for corpus in self.corpora.values()):
            form = f"='{' '.join(f'{name}=FILES' for name in self.corpora)}'"
            raise DataError(max(self.corpora.values(), key=lambda corpus: len(corpus.splits)).how_to_name(split, form))
        return super().parts(split)

    def pairs(self, split: str) -> Iterator[SentencePair]:
        return chain.from_iterable([corpus.pairs(split) for corpus in self.parts(split).values()])

    def count(self, split: str) -> int:
        return sum(corpus.count(split) for corpus in self.parts(split).values())


@register("data_source", "mixture")
def mixture_corpus(data: DataConfig, seed: int) -> MixtureCorpus:
    tags = by_corpus(data.tags, "data.tags")
    corpora = {name: text_corpus(part, seed, tags.get(name, "")) for name, part in data.corpora.items()}
    return MixtureCorpus(corpora, data.source_language, data.target_language, seed)


def parts_of(source: Source, split: str) -> Mapping[str, Source]:
    """Return the corpora of a mixture by name, in order, or one source as ``""``."""
    return source.parts(split) if isinstance(source, Mixture) else {"": source}


def ranges_of(sizes: Mapping[str, int], limit: int = 0) -> list[tuple[str, int, int]]:
    """Return name, first pair, and number of pairs of the corpora in one store.

    With a ``limit`` above 0 the numbers add up to it. They are equal, but for a corpus that is too
    short longer ones get more.
    """
    begins, numbers, left = accumulate(sizes.values(), initial=0), dict(sizes), limit
    for done, name in enumerate(sorted(sizes, key=sizes.__getitem__) if limit else ()):
        numbers[name] = min(sizes[name], -(-left // (len(sizes) - done)))
        left -= numbers[name]
    return [(name, begin, numbers[name]) for name, begin in zip(sizes, begins, strict=False)]


def times_an_epoch(sizes: Mapping[str, int], data: SourceConfig) -> dict[str, float]:
    """Return how often a pair of a corpus occurs in an epoch.

    The share of a corpus with n pairs (or tokens, if these are ``sizes``) is proportional to its
    weight, or to n^(1/T) with the temperature T (Arivazhagan et al. 2019, section 4.2). An epoch
    has every pair of at least one corpus exactly once, and no pair less often.

    Raises:
        DataError: A corpus has no pairs.
        ConfigError: The store has other corpora, or an epoch would be too long.
    """
    files = by_corpus(data.train, "data.train")
    if set(files) != set(sizes):
        raise ConfigError("data.train", f"the store has the corpora {', '.join(sizes)}", "name them so")
    for name, size in sizes.items():
        if not size:
            raise DataError(f"data.train: nothing of the corpus {name!r} is left; look at its text, and at the filters")
    weights = weights_of(data.weights, files)
    rates = {
        name: (weights[name] if weights else size ** (1 / data.temperature)) / size for name, size in sizes.items()
    }
    least = min(rates.values())
    times = {name: rate / least for name, rate in rates.items()}
    total = sum(times[name] * size for name, size in sizes.items())
    if total > LARGEST_EPOCH:
        repeated = max(times, key=lambda name: times[name])
        key = "data.weights" if weights else "data.temperature"
        problem = f"an epoch would be {total:,.0f} pairs or tokens, each of {repeated!r} {times[repeated]:,.0f} times"
        raise ConfigError(key, problem, "choose shares closer to the sizes of the corpora")
    return times


def items_of_epoch(sizes: Mapping[str, int], times: Mapping[str, float], seed: int) -> np.ndarray | None:
    """Return the pairs (documents, rows) of an epoch in one store, or None for all of them once.

    With 2.5 times an epoch a pair is there twice, and a random half of them a third time, the
    same in every epoch.
    """
    counts = {name: round(times[name] * size) for name, size in sizes.items()}
    if counts == sizes:
        return None
    items = []
    for number, (name, begin, size) in enumerate(ranges_of(sizes)):
        whole, more = divmod(counts[name], size)
        repeated = random_order(size, seed, 0, REPEATED_STREAM + number)[:more]
        items += [np.tile(np.arange(size, dtype=repeated.dtype), whole) + begin, repeated + begin]
    return np.concatenate(items).astype(index_type(sum(sizes.values())))


def describe_shares(
    sizes: Mapping[str, int], times: Mapping[str, float], unit: str
) -> tuple[dict[str, object], list[str]]:
    """Return the shares of an epoch as JSON, and a line for a corpus of ``sizes`` in ``unit``."""
    of_epoch = {name: count * sizes[name] for name, count in times.items()}
    shares = {name: size / sum(of_epoch.values()) for name, size in of_epoch.items()}
    lines = [f"  {name}: {shares[name]:.1%} of the {unit} of an epoch, each {times[name]:.2f} times" for name in times]
    return {"mixture": {"times_an_epoch": times, "shares": shares}} if times else {}, lines
