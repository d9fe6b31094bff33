"""Counts of a text, and the updates on it that fit a budget."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from transformer_jax.config import ExperimentConfig
from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.data.documents import no_text, open_documents
from transformer_jax.data.scripts import writes_without_spaces
from transformer_jax.tools.sizing.plan import (
    CHARACTERS_OF_A_TOKEN,
    MIN_UPDATES,
    TOKENS_PER_WORD,
    VOCABULARY_SIZE,
    Plan,
    require_enough,
)

# Measured on two cores of an AMD EPYC (Zen 4).
# The speed of updates relative to small matrix products.
TEXT_EFFICIENCY = 0.7
# Floating-point operations of start-up and compilation at that speed.
TEXT_START_UP = 2e12
TEXT_VALIDATIONS = 5
TEXT_MIN_BETWEEN = 25
# Bytes of the text that are read, and share of its characters that ``alphabet`` covers.
MEASURED_BYTES = 4_000_000
COVERED_CHARACTERS = 0.999
# With this share of characters of scripts without spaces, a text has no words.
SHARE_UNSPACED = 0.3
BYTES_OF_AN_ENTRY = 200
BYTES_TO_LEARN_PIECES = 260
BLANK_LINES = 0.02


class TextStatistics(NamedTuple):
    """Counts of a text, mostly extrapolated from its beginning.

    ``alphabet``: number of the most frequent characters that make up 99.9 % of the text. Empty
    lines separate ``paragraphs``, and if ``has_words`` spaces separate words. ``num_tokens``:
    subwords and EOS, if a tokenizer counted them.
    """

    num_bytes: float
    characters: float
    words: float
    lines: float
    blank_lines: float
    paragraphs: float
    alphabet: int
    has_words: bool = True
    num_tokens: float = 0

    @property
    def documents_are(self) -> str:
        """``paragraphs`` if there are enough empty lines, else ``lines``."""
        return "paragraphs" if self.blank_lines > BLANK_LINES * self.lines else "lines"

    @property
    def tokens(self) -> float:
        """Subwords, with an EOS for each document; an estimate unless they were counted."""
        if self.num_tokens:
            return self.num_tokens
        pieces = self.words * TOKENS_PER_WORD if self.has_words else self.characters / CHARACTERS_OF_A_TOKEN
        return max(pieces + self.documents, 1)

    @property
    def documents(self) -> float:
        """The number of documents."""
        return self.paragraphs if self.documents_are == "paragraphs" else self.lines

    def text(self) -> str:
        """Return the counts in words."""
        size = f"{self.num_bytes / 1e6:.1f} MB" if self.num_bytes >= 1e5 else f"{self.num_bytes / 1e3:.1f} kB"
        words = (
            f"{_about(self.words)} words" if self.has_words else f"{_about(self.characters)} characters without spaces"
        )
        divided = "between empty lines" if self.documents_are == "paragraphs" else "one a line"
        return f"{size}, {words} in {_about(self.documents)} documents ({divided}: data.documents={self.documents_are})"

    def divided(self, fixed: Mapping[str, Any]) -> "TextStatistics":
        """Return the counts with a fixed ``data.documents``."""
        if "data.documents" not in fixed:
            return self
        return self._replace(blank_lines=self.lines if fixed["data.documents"] == "paragraphs" else 0)

    def entries(self, wanted: int) -> int:
        """Return the number of entries of a vocabulary, 0 if the text is too short.

        If the text suffices it is at least three for each character.
        """
        entries = int(min(max(wanted, 3 * self.alphabet), self.num_bytes // BYTES_OF_AN_ENTRY))
        return entries if entries >= BYTES_TO_LEARN_PIECES + 2 * self.alphabet else 0

    def pieces(self, wanted: int) -> int:
        """Return the number of entries of a vocabulary of subwords, also for short text."""
        return self.entries(wanted) or BYTES_TO_LEARN_PIECES + 2 * self.alphabet


def _about(number: float) -> str:
    """Return ``about 7,960`` for 7,958: three digits of an estimate."""
    rounded = float(f"{number:.3g}")
    return f"about {rounded:,.0f}" if number >= 1000 else f"{number:.0f}"


def measure_text(data: TextDataConfig, seed: int) -> TextStatistics:
    """Return counts of the training text, extrapolated from its first 4 MB."""
    source = open_documents(replace(data, documents="lines"), seed)
    characters: Counter[str] = Counter()
    lines = blank = paragraphs = words = num_bytes = 0
    is_open = False
    for document in source.documents(data.split_name("train")):
        text = document.text.rstrip("\r")
        lines, words, num_bytes = lines + 1, words + len(text.split()), num_bytes + document.num_bytes
        blank, paragraphs = blank + (not text), paragraphs + (bool(text) and not is_open)
        is_open = bool(text)
        characters.update(text)
        if num_bytes >= MEASURED_BYTES:
            break
    total, number = source.count_bytes(data.split_name("train")), characters.total()
    if not number:
        raise no_text(source, data.split_name("train"))
    cumulative = itertools.accumulate(count for _, count in characters.most_common())
    alphabet = 1 + sum(count < COVERED_CHARACTERS * number for count in cumulative)
    unspaced = sum(count for character, count in characters.items() if writes_without_spaces(character))
    whole = total / max(num_bytes, 1)
    return TextStatistics(
        num_bytes=total,
        characters=number * whole,
        words=words * whole,
        lines=lines * whole,
        blank_lines=blank * whole,
        paragraphs=paragraphs * whole,
        alphabet=alphabet,
        has_words=unspaced < SHARE_UNSPACED * number,
    )


def plans_text(plan: Callable[..., Plan]) -> Callable[..., Plan]:
    """Return the ``plan`` of a ``Sizing`` for text, from a plan that takes the measured text."""

    def planned(config: ExperimentConfig, seconds: float, flops: float, fixed: Mapping[str, Any]) -> Plan:
        text = measure_text(config.data, config.data_seed)
        planned, supported_size = plan(text, seconds, flops, fixed), dict[str, int]()
        # The size follows from the number of tokens, and that from the vocabulary of the size.
        for _ in range(3):
            size = planned.settings[VOCABULARY_SIZE]
            if planned.settings["tokenizer.kind"] not in SUBWORD_KINDS:
                break
            tokens, supported = _count_tokens(config, planned.settings)
            if supported < size:
                supported_size = {VOCABULARY_SIZE: supported}
            text = text._replace(num_tokens=tokens)
            planned = plan(text, seconds, flops, {**supported_size, **fixed})
            if planned.settings[VOCABULARY_SIZE] in (size, supported):
                break
        return planned

    return planned


def _count_tokens(config: ExperimentConfig, settings: Mapping[str, Any]) -> tuple[float, int]:
    """Return the number of tokens of the training text, with EOS, and the size of its vocabulary.

    Extrapolates from the first 4 MB and a vocabulary learned from them.
    """
    # This imports JAX.
    from transformer_jax.data.tokenizers.tokenizer_training import train_supported

    data = replace(config.data, documents=settings["data.documents"])
    source, split = open_documents(data, config.data_seed), data.split_name("train")
    texts, num_bytes = [], 0
    for document in source.documents(split):
        texts.append(document.text)
        num_bytes += document.num_bytes
        if num_bytes >= MEASURED_BYTES:
            break
    kind, size = settings["tokenizer.kind"], settings[VOCABULARY_SIZE]
    tokenizer = train_supported(replace(config.tokenizer, kind=kind, vocabulary_size=size), texts)
    tokens = sum(map(len, tokenizer.encode_batch(texts))) + len(texts)
    return tokens * source.count_bytes(split) / max(num_bytes, 1), tokenizer.vocabulary_size


def text_keys(plan: Callable[[TextStatistics, float, float], Plan]) -> tuple[str, ...]:
    """Return the keys of the settings that a plan of text chooses."""
    return tuple(plan(TextStatistics(1e9, 1e9, 2e8, 1e7, 0, 1, 100), 1e9, 1e12).settings)


def text_updates(
    fixed: Mapping[str, Any], budget: int | float, flops_of_update: int | float, max_updates: int | float, speed: float
) -> tuple[int, float]:
    """Return the number of updates, and the seconds of start-up and updates at ``speed`` FLOP/s.

    The number is the fixed one, or at most ``max_updates`` that fit the budget. ``flops_of_update``
    are floating-point operations.
    """

    def seconds(updates: int) -> float:
        return (TEXT_START_UP + updates * flops_of_update) / speed

    if updates := int(fixed.get("training.num_updates") or 0):
        return updates, seconds(updates)
    updates = int(min(max(budget * speed - TEXT_START_UP, 0) / flops_of_update, max_updates))
    require_enough(budget, updates, seconds(MIN_UPDATES))
    return updates, seconds(updates)
