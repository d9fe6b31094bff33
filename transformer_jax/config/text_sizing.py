"""Size and length of runs on plain text, of language models and word vectors, from the text and the time that they may take."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformer_jax.config.errors import ConfigError
from transformer_jax.config.language_model import TextBatchingConfig

# On two cores of an AMD EPYC (Zen 4): the speed of updates as a part of that of small matrix products, and at that speed the
# floating-point operations of start-up and compilation.
EFFICIENCY, START_UP = 0.7, 2e12
FEWEST_UPDATES, VALIDATIONS, FEWEST_BETWEEN = 20, 5, 25
# Tokens of training for each parameter below which a smaller model is better (20 where time is no matter: Hoffmann et al.
# 2022); parameters for each token of the text above which a model learns it by heart; epochs after which more change little.
TOKENS_OF_A_PARAMETER, PARAMETERS_OF_A_TOKEN, MOST_EPOCHS = 4, 4, 24
DROPOUTS = ((2, 0.0), (5, 0.1), (12, 0.2), (MOST_EPOCHS, 0.3))
"""By the most epochs that it is for: text that is seen once needs none."""
SHARE_OF_A_VALIDATION = 0.03
TOKENS_OF_A_WORD, CHARACTERS_OF_A_TOKEN = 1.4, 1.7
BYTES_OF_AN_ENTRY, BYTES_TO_LEARN_PIECES = 200, 260
BLANK_LINES = 0.02
# Of word vectors: floating-point operations of a word for each dimension; words of the text for each word of a block, whose
# gradients add up.
OPERATIONS_OF_A_WORD, TEXT_OF_A_BLOCK, ROW_LENGTH, MOST_ROWS, MOST_BLOCKS = 1000, 200, 32, 32, 32
FEWEST_UPDATES_OF_AN_EPOCH = 20


class TextStatistics(NamedTuple):
    """Counts of a text, most of them estimated from its beginning.

    ``alphabet``: the most frequent characters that are 99.9 % of the text. ``paragraphs`` are separated by blank lines,
    words by spaces, where there are any.
    """

    num_bytes: float
    characters: float
    words: float
    lines: float
    blank_lines: float
    paragraphs: float
    alphabet: int
    has_words: bool = True

    @property
    def documents_are(self) -> str:
        """``paragraphs``, where blank lines separate any; else ``lines``."""
        return "paragraphs" if self.blank_lines > BLANK_LINES * self.lines else "lines"

    @property
    def tokens(self) -> float:
        """About so many pieces, with an end for each document."""
        pieces = self.words * TOKENS_OF_A_WORD if self.has_words else self.characters / CHARACTERS_OF_A_TOKEN
        return max(pieces + self.documents, 1)

    @property
    def documents(self) -> float:
        """The number of documents, as they are divided."""
        return self.paragraphs if self.documents_are == "paragraphs" else self.lines

    def text(self) -> str:
        """The text in numbers."""
        size = f"{self.num_bytes / 1e6:.1f} MB" if self.num_bytes >= 1e5 else f"{self.num_bytes / 1e3:.1f} kB"
        words = f"{self.words:,.0f} words" if self.has_words else f"{self.characters:,.0f} characters without spaces"
        divided = "between blank lines" if self.documents_are == "paragraphs" else "one a line"
        return (
            f"{size}, about {words} in {self.documents:,.0f} documents ({divided}: data.documents={self.documents_are})"
        )


class TextPlan(NamedTuple):
    """Settings by dotted key, the seconds that they are estimated to take, and a line that says both."""

    settings: dict[str, Any]
    seconds: float
    sentence: str


class Size(NamedTuple):
    """A decoder-only Transformer and its batches."""

    num_layers: int
    d_model: int
    num_heads: int
    vocabulary_size: int
    context_length: int
    learning_rate: float
    tokens_per_update: int

    @property
    def parameters(self) -> int:
        """Of the layers and the one matrix of the embeddings."""
        return 12 * self.num_layers * self.d_model**2 + self.vocabulary_size * self.d_model


SIZES = (
    Size(2, 128, 4, 2000, 128, 3e-3, 2048),
    Size(4, 192, 4, 4000, 256, 3e-3, 4096),
    Size(6, 256, 4, 8000, 256, 2e-3, 8192),
    Size(6, 384, 6, 12_000, 256, 1.5e-3, 8192),
    Size(8, 512, 8, 16_000, 512, 1e-3, 16_384),
    Size(12, 768, 12, 32_000, 1024, 6e-4, 65_536),
)
BLOCK_OF = {name: "batching" if name in ("context_length", "tokens_per_update") else "model" for name in Size._fields}
KEYS = {name: f"{block}.{name}" for name, block in BLOCK_OF.items()} | {
    "vocabulary_size": "tokenizer.vocabulary_size",
    "learning_rate": "optimizer.learning_rate",
}


def plan_language_model(
    text: TextStatistics, budget_seconds: float, flops: float, stated: Mapping[str, Any] | None = None
) -> TextPlan:
    """The largest model that the text supports and the budget trains on enough tokens, for as long as it gains.

    ``flops``: floating-point operations per second of matrix products on this machine; an update makes six of them for each
    parameter and token. ``stated``: settings, by dotted key, that stay as they are.

    Raises ConfigError when the budget does not pay ``FEWEST_UPDATES`` after start-up, and says which would.
    """
    stated, speed = stated or {}, EFFICIENCY * flops
    text = _divided(text, stated)
    kind = stated.get("tokenizer.kind", "bpe" if _entries(text, SIZES[0].vocabulary_size) else "byte")
    sizes = [_stated(_for_text(size, text, kind), stated) for size in SIZES]
    paid = [(budget_seconds * speed - START_UP) / (6 * size.parameters) for size in sizes]
    fit = [
        size
        for size, tokens in zip(sizes, paid, strict=True)
        if tokens >= TOKENS_OF_A_PARAMETER * size.parameters
        and size.parameters <= PARAMETERS_OF_A_TOKEN * _tokens(text, kind)
    ]
    size = (fit or sizes[:1])[-1]
    each, tokens = 6 * size.parameters * size.tokens_per_update, _tokens(text, kind)
    most = max(MOST_EPOCHS * tokens / size.tokens_per_update, FEWEST_UPDATES)
    updates = stated.get("training.num_updates") or int(min(max(budget_seconds * speed - START_UP, 0) / each, most))
    _require_enough(budget_seconds, updates, START_UP + FEWEST_UPDATES * each, speed)
    epochs = updates * size.tokens_per_update / tokens
    dropout = next(rate for limit, rate in DROPOUTS if epochs <= limit or limit == MOST_EPOCHS)
    validated = SHARE_OF_A_VALIDATION * updates * size.tokens_per_update * text.documents / tokens
    settings = {KEYS[name]: value for name, value in size._asdict().items()} | {
        "data.documents": text.documents_are,
        "tokenizer.kind": kind,
        "model.d_ff": 4 * size.d_model,
        "model.max_positions": size.context_length,
        "model.dropout": dropout,
        "model.embedding_dropout": dropout / 2,
        "optimizer.warmup_updates": min(max(updates // 10, 1), 1000),
        "training.validation_sentences": int(min(max(validated, 50), 20_000)),
        "decoding.max_new_tokens": size.context_length // 2,
        **_length(updates),
    }
    seconds = (START_UP + updates * each) / speed
    pieces = "bytes" if kind == "byte" else f"{size.vocabulary_size:,} pieces"
    sentence = (
        f"{text.text()}: {size.parameters / 1e6:.1f} million parameters, vocabulary of {pieces}, context of "
        f"{size.context_length} tokens, dropout {stated.get('model.dropout', dropout)}, {updates:,} updates "
        f"({epochs:.1f} epochs), {_minutes(seconds)}"
    )
    return TextPlan(settings, seconds, sentence)


def plan_word_vectors(
    text: TextStatistics, budget_seconds: float, flops: float, stated: Mapping[str, Any] | None = None
) -> TextPlan:
    """Dimension, vocabulary and blocks by the words of the text, and as many epochs as gain and the budget pays.

    Arguments and errors are those of ``plan_language_model``.
    """
    stated, speed = stated or {}, EFFICIENCY * flops
    text = _divided(text, stated)
    words = text.words if text.has_words else text.tokens
    dimension = stated.get("model.d_model") or (300 if words >= 1e8 else 100 if words >= 2e6 else 50)
    rows = _power_of_two(words / TEXT_OF_A_BLOCK / ROW_LENGTH, MOST_ROWS)
    blocks = _power_of_two(words / FEWEST_UPDATES_OF_AN_EPOCH / (rows * ROW_LENGTH), MOST_BLOCKS)
    # An update has at least 16 spans, which are longer than a window.
    blocks = max(blocks, 4 if rows == 1 else 1)
    words_of_update = rows * ROW_LENGTH * blocks
    each = OPERATIONS_OF_A_WORD * dimension * words_of_update
    most = max((5 if words >= 1e7 else 15) * words / words_of_update, FEWEST_UPDATES)
    updates = stated.get("training.num_updates") or int(min(max(budget_seconds * speed - START_UP, 0) / each, most))
    _require_enough(budget_seconds, updates, START_UP + FEWEST_UPDATES * each, speed)
    settings = {
        "data.documents": text.documents_are,
        "tokenizer.kind": "lower_word" if text.has_words else "bpe",
        "tokenizer.vocabulary_size": 1_000_000 if text.has_words else _pieces(text, 8000),
        "tokenizer.min_count": 5 if words >= 1e6 else 3 if words >= 1e5 else 2,
        "batching.rows": rows,
        "batching.row_length": ROW_LENGTH,
        "batching.blocks_per_update": blocks,
        "model.d_model": dimension,
        **_length(updates),
    }
    seconds = (START_UP + updates * each) / speed
    sentence = (
        f"{text.text()}: {dimension} dimensions, words of at least {settings['tokenizer.min_count']} occurrences, "
        f"{updates:,} updates ({updates * words_of_update / max(words, 1):.1f} epochs), {_minutes(seconds)}"
    )
    return TextPlan(settings, seconds, sentence)


def _divided(text: TextStatistics, stated: Mapping[str, Any]) -> TextStatistics:
    """The text with documents as they are stated."""
    if "data.documents" not in stated:
        return text
    return text._replace(blank_lines=text.lines if stated["data.documents"] == "paragraphs" else 0)


def _length(updates: int) -> dict[str, int]:
    # Rounded up: a last validation a few updates after another would tell nothing new.
    every = max(-(-updates // VALIDATIONS), min(updates, FEWEST_BETWEEN))
    return {
        "training.num_updates": updates,
        "training.evaluate_every": every,
        "training.checkpoint_every": every,
        "training.log_every": min(50, every),
    }


def _require_enough(budget: float, updates: int, least: float, speed: float) -> None:
    if updates < FEWEST_UPDATES:
        raise ConfigError(
            f"--budget: {budget:.0f} s do not pay start-up, compilation and {FEWEST_UPDATES} updates here; give "
            f"{max(round(least / speed / 60 + 0.5), 1)}m or more"
        )


def _entries(text: TextStatistics, wanted: int) -> int:
    """Entries of a vocabulary: at least three for each character, as many as the text can teach; 0 where it is too short."""
    entries = int(min(max(wanted, 3 * text.alphabet), text.num_bytes // BYTES_OF_AN_ENTRY))
    return entries if entries >= BYTES_TO_LEARN_PIECES + 2 * text.alphabet else 0


def _pieces(text: TextStatistics, wanted: int) -> int:
    """Entries of a vocabulary of pieces, also where the text is short."""
    return _entries(text, wanted) or BYTES_TO_LEARN_PIECES + 2 * text.alphabet


def _for_text(size: Size, text: TextStatistics, kind: str) -> Size:
    entries = BYTES_TO_LEARN_PIECES if kind == "byte" else _pieces(text, size.vocabulary_size)
    return size._replace(vocabulary_size=entries)


def _tokens(text: TextStatistics, kind: str) -> float:
    return text.num_bytes if kind == "byte" else text.tokens


def _stated(size: Size, stated: Mapping[str, Any]) -> Size:
    """The size with what is stated, and what that needs: rows that fit into an update, heads that divide the width."""
    size = size._replace(**{name: stated[key] for name, key in KEYS.items() if key in stated})
    least = 0 if KEYS["tokens_per_update"] in stated else TextBatchingConfig.row_multiple * size.context_length
    heads = size.num_heads if KEYS["num_heads"] in stated else math.gcd(size.num_heads, size.d_model)
    return size._replace(tokens_per_update=max(size.tokens_per_update, least), num_heads=heads)


def _power_of_two(number: float, most: int) -> int:
    return min(1 << max(int(number), 1).bit_length() - 1, most)


def _minutes(seconds: float) -> str:
    shown = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    return f"about {shown} of this CPU if it is free"


_ANY = TextStatistics(1e9, 1e9, 2e8, 1e7, 0, 1, 100)
LANGUAGE_MODEL_KEYS, WORD_VECTOR_KEYS = (
    (*plan(_ANY, 1e9, 1e12).settings, "training.budget_seconds") for plan in (plan_language_model, plan_word_vectors)
)
"""The settings that a plan chooses."""
