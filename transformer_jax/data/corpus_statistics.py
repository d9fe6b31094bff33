"""The characters, scripts and words of the two sides of a corpus, from a bounded sample of it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from transformer_jax.config.languages import SCRIPTS_WITHOUT_SPACES, script_of
from transformer_jax.data.sentence_pairs import SentencePair

# Pairs of a block of the sample, of the sample, and of the text that it is taken from.
BLOCK, SAMPLED, MOST_READ = 256, 20_000, 400_000
LARGE_SCRIPTS = frozenset(("HAN", "HANGUL", "YI", "TANGUT"))
"""Scripts of thousands of characters."""
MANY_CHARACTERS, MAIN_SHARE = 1000, 0.1
FULL_WIDTH = re.compile("[\u3000\uff01-\uff60\uffe0-\uffe6]")
ZERO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
LETTERS = re.compile(r"[^\W\d_]+")


class SideText(NamedTuple):
    """One side of a sample: its sentences, words at spaces, distinct runs of letters, and the counts of its characters.

    A character that occurs only outside of the sample has the count 0.
    """

    sentences: int
    words: int
    distinct_words: frozenset[str]
    characters: Counter[str]

    @property
    def scripts(self) -> dict[str, float]:
        """The share of each script in the letters, the largest first."""
        letters: Counter[str] = Counter()
        for character, count in self.characters.items():
            letters[script_of(character)] += count
        del letters[""]
        return {script: count / letters.total() for script, count in letters.most_common() if count}

    @property
    def main_scripts(self) -> tuple[str, ...]:
        """The scripts with a tenth of the letters or more."""
        return tuple(script for script, share in self.scripts.items() if share >= MAIN_SHARE)

    @property
    def has_many_characters(self) -> bool:
        """Whether a main script has thousands of characters, or the text has."""
        return not LARGE_SCRIPTS.isdisjoint(self.main_scripts) or len(self.characters) >= MANY_CHARACTERS

    @property
    def is_spaced(self) -> bool:
        """Whether words are separated by spaces in most of the text."""
        return sum(share for script, share in self.scripts.items() if script in SCRIPTS_WITHOUT_SPACES) < 0.5

    def count(self, pattern: re.Pattern[str]) -> int:
        """The occurrences of characters that match."""
        return sum(count for character, count in self.characters.items() if pattern.match(character))


def side_text(texts: Iterable[str], alphabet: Iterable[str] = ()) -> SideText:
    """Counts the sentences of one side; white space is no character. ``alphabet``: characters that occur elsewhere."""
    characters = Counter(dict.fromkeys((each for each in alphabet if not each.isspace()), 0))
    distinct: set[str] = set()
    sentences = words = 0
    for text in texts:
        parts = text.split()
        characters.update("".join(parts))
        distinct.update(LETTERS.findall(text))
        words += len(parts)
        sentences += 1
    return SideText(sentences, words, frozenset(distinct), characters)


def shared_letters(source: SideText, target: SideText) -> float:
    """The part of the letters that is in scripts of both sides; 0 to 1."""
    others = target.scripts
    return sum(min(share, others.get(script, 0.0)) for script, share in source.scripts.items())


class CorpusSample(NamedTuple):
    """Blocks of consecutive pairs, evenly spread, with their ``lines`` from 0, and the text of both sides."""

    lines: list[int]
    pairs: list[SentencePair]
    source: SideText
    target: SideText


def sample_of(pairs: Iterable[SentencePair], count: int) -> CorpusSample:
    """About ``SAMPLED`` of the first ``MOST_READ`` pairs of ``count``; the alphabets are those of all pairs read."""
    alphabets: tuple[set[str], set[str]] = set(), set()
    chosen: list[tuple[int, SentencePair]] = []
    for is_sampled, start, block in _blocks(pairs, min(count, MOST_READ)):
        alphabets[0].update(*(pair.source for pair in block))
        alphabets[1].update(*(pair.target for pair in block))
        if is_sampled:
            chosen.extend(enumerate(block, start))
    source = side_text((pair.source for _, pair in chosen), alphabets[0])
    target = side_text((pair.target for _, pair in chosen), alphabets[1])
    return CorpusSample([line for line, _ in chosen], [pair for _, pair in chosen], source, target)


def _blocks(pairs: Iterable[SentencePair], count: int) -> Iterator[tuple[bool, int, list[SentencePair]]]:
    """Whether a block is sampled, its first line, its pairs."""
    stream = islice(pairs, count)
    number = SAMPLED // BLOCK
    start = index = 0
    while block := list(islice(stream, BLOCK)):
        is_sampled = start >= index * count // number or count <= SAMPLED
        yield is_sampled, start, block
        index += is_sampled
        start += BLOCK
