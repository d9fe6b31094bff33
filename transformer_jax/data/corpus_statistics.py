"""Characters, scripts and words of both sides of a corpus, and the vocabulary that suits them."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import batched, islice
from typing import Any, NamedTuple

import regex

from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.data.scripts import SCRIPTS_WITHOUT_SPACES, script_of
from transformer_jax.data.sentence_pairs import SentencePair

# Pairs in a block of the sample.
BLOCK = 256
# Pairs in the sample.
SAMPLED = 20_000
# Pairs at the beginning of the text from which the sample is taken.
MAX_READ = 400_000
LARGE_SCRIPTS = frozenset(("HAN", "HANGUL", "YI", "TANGUT"))
"""Scripts of thousands of characters."""
# Distinct characters of a text in a script of thousands.
MANY_CHARACTERS = 1000
# Share of the letters in a main script.
MAIN_SHARE = 0.1
FULL_WIDTH = re.compile("[\u3000\uff01-\uff60\uffe0-\uffe6]")
ZERO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
LETTERS = regex.compile(r"[\p{L}\p{M}]+")
# Minimum pieces for a distinct character of a joint vocabulary, which would otherwise spell a
# language in letters.
PIECES_PER_CHARACTER = 3.0
# The same for one of two vocabularies.
PIECES_PER_CHARACTER_OF_TWO = 1.4
# Pieces for a distinct run of two letters or more. sentencepiece finds at least 1.9 in 200 to
# 20,000 lines of en, de, fr and ja.
PIECES_PER_WORD = 1.5
# 4 special ids and 256 bytes.
FIXED_PIECES = 260
# Share of letters in scripts of both sides from which on one joint vocabulary is used.
MIN_SHARED = 0.5


class SideText(NamedTuple):
    """One side of a sample: sentences, words between spaces, runs of letters, and characters.

    A character that occurs only outside of the sample has the count 0.
    """

    sentences: int
    words: int
    distinct_words: frozenset[str]
    characters: Counter[str]

    @property
    def scripts(self) -> dict[str, float]:
        """The share of letters by script, largest first."""
        letters: Counter[str] = Counter()
        for character, count in self.characters.items():
            letters[script_of(character)] += count
        del letters[""]
        return {script: count / letters.total() for script, count in letters.most_common() if count}

    @property
    def main_scripts(self) -> tuple[str, ...]:
        return tuple(script for script, share in self.scripts.items() if share >= MAIN_SHARE)

    @property
    def has_many_characters(self) -> bool:
        """Whether a main script, or the text, has thousands of characters."""
        return not LARGE_SCRIPTS.isdisjoint(self.main_scripts) or len(self.characters) >= MANY_CHARACTERS

    @property
    def is_spaced(self) -> bool:
        return sum(share for script, share in self.scripts.items() if script in SCRIPTS_WITHOUT_SPACES) < 0.5

    @property
    def required_pieces(self) -> int:
        """The size of the smallest vocabulary of subwords: characters and the mark of a space."""
        return FIXED_PIECES + len(self.characters) + 1

    @property
    def supported_pieces(self) -> int:
        """The size of a vocabulary of subwords that can be learned from the text."""
        longer = sum(len(word) > 1 for word in self.distinct_words)
        return self.required_pieces + int(PIECES_PER_WORD * longer)

    def joined(self, other: "SideText") -> "SideText":
        characters = self.characters.copy()
        characters.update(other.characters)
        distinct = self.distinct_words | other.distinct_words
        return SideText(self.sentences + other.sentences, self.words + other.words, distinct, characters)

    def count(self, pattern: re.Pattern[str]) -> int:
        return sum(count for character, count in self.characters.items() if pattern.match(character))


def side_text(texts: Iterable[str], alphabet: Iterable[str] = ()) -> SideText:
    """Return the counts of one side, whose characters outside of the sample are ``alphabet``."""
    characters = Counter(dict.fromkeys(alphabet, 0))
    distinct: set[str] = set()
    sentences = words = 0
    for text in texts:
        characters.update(text)
        distinct.update(LETTERS.findall(text))
        words += len(text.split())
        sentences += 1
    # Subwords have one mark for all of them; any other space needs a piece.
    for space in string.whitespace:
        del characters[space]
    return SideText(sentences, words, frozenset(distinct), characters)


class CorpusSample(NamedTuple):
    """Evenly spread blocks of pairs, their ``lines`` (from 0), and the text of sides."""

    lines: list[int]
    pairs: list[SentencePair]
    source: SideText
    target: SideText


def sample_of(pairs: Iterable[SentencePair], count: int) -> CorpusSample:
    """Sample ``SAMPLED`` of the first ``MAX_READ`` pairs; alphabets are of all pairs read."""
    alphabets: tuple[set[str], set[str]] = set(), set()
    sampled: list[tuple[int, SentencePair]] = []
    for is_sampled, start, block in _blocks(pairs, min(count, MAX_READ)):
        alphabets[0].update(*(pair.source for pair in block))
        alphabets[1].update(*(pair.target for pair in block))
        if is_sampled:
            sampled.extend(enumerate(block, start))
    source = side_text((pair.source for _, pair in sampled), alphabets[0])
    target = side_text((pair.target for _, pair in sampled), alphabets[1])
    return CorpusSample([line for line, _ in sampled], [pair for _, pair in sampled], source, target)


def sampled_pairs(pairs: Iterable[SentencePair], count: int) -> list[tuple[int, SentencePair]]:
    """Return the pairs of ``sample_of`` with their lines, without the counts of their text."""
    blocks = _blocks(pairs, min(count, MAX_READ))
    return [numbered for is_sampled, start, block in blocks if is_sampled for numbered in enumerate(block, start)]


def _blocks(pairs: Iterable[SentencePair], count: int) -> Iterator[tuple[bool, int, tuple[SentencePair, ...]]]:
    """Yield blocks: whether one is sampled, its first line, and its pairs."""
    number, sampled = SAMPLED // BLOCK, 0
    for index, block in enumerate(batched(islice(pairs, count), BLOCK)):
        is_sampled = index * BLOCK >= sampled * count // number or count <= SAMPLED
        yield is_sampled, index * BLOCK, block
        sampled += is_sampled


class VocabularyChoice(NamedTuple):
    """Settings by dotted key, and a sentence with the reasons."""

    settings: dict[str, Any]
    sentence: str


def vocabulary_of(
    source: SideText, target: SideText, kind: str, size: int, fixed: Mapping[str, Any] | None = None
) -> VocabularyChoice:
    """Choose the size and sharing of the vocabulary; settings in ``fixed`` stay.

    One joint vocabulary is best if half of the letters are in scripts of both sides. With two,
    source and target embeddings cannot be tied. A joint vocabulary of subwords gets ``size``
    pieces, and at least 260 + 3n for n distinct characters. Two of different scripts get half of
    ``size`` each, and at least 260 + 1.4n. None gets more than the text supports.
    """
    fixed = fixed or {}
    others = target.scripts
    shared = sum(min(share, others.get(script, 0.0)) for script, share in source.scripts.items())
    is_joint, reason = shared >= MIN_SHARED, f"{shared:.0%} of the letters in scripts of both"
    if not is_joint and min(source.supported_pieces, target.supported_pieces) <= max(
        source.required_pieces, target.required_pieces
    ):
        is_joint, reason = True, "too little text for two"
    if "tokenizer.joint" in fixed:
        is_joint, reason = fixed["tokenizer.joint"], "tokenizer.joint is set"
    elif fixed.get("model.tying") in ("all", "embeddings"):
        is_joint, reason = True, f"model.tying={fixed['model.tying']} is set"
    both = source.joined(target)
    sides = [both] if is_joint else [source, target]
    characters = max(len(side.characters) for side in sides)
    needed = FIXED_PIECES + int((PIECES_PER_CHARACTER if is_joint else PIECES_PER_CHARACTER_OF_TWO) * characters)
    if kind in SUBWORD_KINDS:
        # Measured with two scripts.
        share = 2 if not is_joint and shared < MIN_SHARED else 1
        size = min(max(size // share, needed), *(side.supported_pieces for side in sides))
    size = fixed.get("tokenizer.vocabulary_size", size)
    settings: dict[str, Any] = {"tokenizer.vocabulary_size": size, "tokenizer.joint": is_joint}
    if kind in SUBWORD_KINDS:
        # By the scripts of the sides.
        settings["tokenizer.character_coverage"] = 0
    if not is_joint:
        settings["model.tying"] = "output"
    settings = {key: value for key, value in settings.items() if key not in fixed}
    number = "one joint vocabulary" if is_joint else "two vocabularies"
    names = ["/".join(map(str.title, side.main_scripts)) or "no letters" for side in (source, target)]
    scripts = " and ".join(names) if names[0] != names[1] else f"{names[0]} on both sides"
    odd = {"full-width": both.count(FULL_WIDTH), "zero-width": both.count(ZERO_WIDTH)}
    kept = ", ".join(f"{count:,} {name}" for name, count in odd.items() if count) or "no full- or zero-width"
    sentence = (
        f"{number} of {size:,} pieces ({scripts}, {reason}; {characters:,} distinct characters); "
        f"text is not normalized: {kept} characters in a sample of {source.sentences:,} pairs"
    )
    return VocabularyChoice(settings, sentence)
