"""Size and length of a run from its text and its time budget, by rules of thumb."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.config.language_model import TextBatchingConfig
from transformer_jax.errors import ConfigError

# WSD trained better than a cosine with budgets of 25 s to 10 minutes: experiments/own_text,
# docs/language_models.md.
SCHEDULE = "wsd"
SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MIN_UPDATES = 20
# A plan that uses less of its budget says why.
USED = 0.9


class Plan(NamedTuple):
    """Settings by dotted key, the estimated seconds of the run, and a sentence with both.

    ``max_updates``: the number of updates beyond which training seldom helps.

    Every planning function takes the text, the budget in seconds, ``flops`` (floating-point
    operations per second of matrix products on this machine; an update needs six for each parameter
    and token) and ``fixed`` (settings by dotted key that stay). It raises ConfigError when the
    budget is too short for start-up and ``MIN_UPDATES``.
    """

    settings: dict[str, Any]
    seconds: float
    sentence: str
    max_updates: int = 0


def seconds_of(budget: str) -> float:
    """Return 1200.0 for ``20m``. Raises ConfigError unless it is a number with s, m, h or d."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", str(budget).strip())
    if not match or not float(match[1]):
        raise ConfigError("--budget", f"{budget!r} is not a time", "write 90s, 20m, 2h or 1d")
    return float(match[1]) * SECONDS_OF_UNIT[match[2]]


def _require_enough(budget: int | float, updates: int, least_seconds: float) -> None:
    if updates < MIN_UPDATES:
        raise ConfigError(
            "--budget",
            f"{budget:.0f} s are too short: start-up, compilation and {MIN_UPDATES} updates take "
            f"about {least_seconds:.0f} s here",
            f"give {max(round(least_seconds / 60 + 0.5), 1)}m or more",
        )


def update_intervals(updates: int, validations: int, fewest_between: int) -> dict[str, int]:
    # Rounded up: a last validation a few updates after the one before would be useless.
    every = max(-(-updates // validations), min(updates, fewest_between))
    return {
        "training.num_updates": updates,
        "training.evaluate_every": every,
        "training.checkpoint_every": every,
        "training.log_every": min(50, every),
    }


def _about(number: float) -> str:
    """Return ``about 7,960`` for 7,958: three digits of an estimate."""
    rounded = float(f"{number:.3g}")
    return f"about {rounded:,.0f}" if number >= 1000 else f"{number:.0f}"


def _time(seconds: float) -> str:
    if seconds >= 4 * 3600:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def minutes_of_this_cpu(seconds: float) -> str:
    return f"about {_time(seconds)} of this CPU if it is free"


def _left_over(fixed: Mapping[str, Any], budget_seconds: float, seconds: float, epochs: float, max_epochs: int) -> str:
    """Return the part of a sentence on the time that a plan leaves unused, or ""."""
    if seconds >= USED * budget_seconds or fixed.get("training.num_updates"):
        return ""
    left = f"; {_time(budget_seconds - seconds)} of the budget are left over"
    if epochs > max_epochs + 1:
        return f"{left}: the text is so short that {MIN_UPDATES} updates, the minimum, are many epochs"
    return f"{left}: more than {max_epochs} epochs of the same text seldom help"


def _of_width(row: Any, rows: Sequence[Any], fixed: Mapping[str, Any]) -> Any:
    """Return a listed size in a fixed width, with a feed-forward layer in proportion.

    The learning rate is the one of the widest listed size that is no wider, for batches of ``row``.
    The number of heads divides the width; a fixed number may need a wider size.
    """
    width, heads = fixed.get("model.d_model", row.d_model), fixed.get("model.num_heads", row.num_heads)
    if "model.d_model" not in fixed:
        # An even size of a head, as rotary positions need.
        width = row.d_model if row.d_model % heads == 0 else -(-row.d_model // (2 * heads)) * 2 * heads
    elif "model.num_heads" not in fixed:
        heads = math.gcd(heads, width)
    if width == row.d_model:
        return row._replace(num_heads=heads)
    widest = max((listed.d_model for listed in rows if listed.d_model <= width), default=rows[0].d_model)
    like = next(listed for listed in rows if listed.d_model == widest)
    rate = like.learning_rate * min(row.tokens_per_update / like.tokens_per_update, 1) ** 0.5
    d_ff = row.d_ff * width // row.d_model
    return row._replace(d_model=width, num_heads=heads, d_ff=d_ff, learning_rate=round(rate, 5))


def _without_model(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixed settings by which a size is chosen: not its own."""
    return {key: value for key, value in fixed.items() if not key.startswith("model.")}


def _rate_of_peak(fixed: Mapping[str, Any], peak: float, d_model: int, warmup_updates: int) -> float:
    """Return ``optimizer.learning_rate``, which is a factor in ``noam`` (paper, equation 3)."""
    if fixed.get("optimizer.schedule") != "noam":
        return peak
    return float(round(peak * (d_model * fixed.get("optimizer.warmup_updates", warmup_updates)) ** 0.5, 4))


# Translation.
# Measured with the recipes text and multi30k on two cores of an AMD EPYC (Zen 4).
# The speed of updates relative to small matrix products.
EFFICIENCY = 0.55
# Costs in floating-point operations at that speed: of start-up and compilation.
START_UP = 6e12
# Of validating ``VALIDATED`` sentences, for a parameter.
VALIDATION = 1e5
# Of compiling the first validation.
FIRST_VALIDATION = 1.3e12
SHARE_OF_VALIDATIONS = 0.05
SHARE_OF_TIME_IN_UPDATES = 0.9
MIN_VALIDATIONS = 2
MAX_VALIDATIONS = 8
# Updates between validations.
MIN_BETWEEN = 50
# Full batches on a CPU. BLEU of so few sentences differs between checkpoints by 1.6 at random: a
# run of 30 minutes chose a checkpoint 2.2 BLEU below its last, one of 10 minutes 1.8
# (experiments/own_text). So longer runs validate more sentences, and shorter ones so rarely that
# only the last checkpoint is in the decay of the learning rate, the last fifth of the updates.
VALIDATED = 96
MAX_BATCHES_VALIDATED = 20
ENOUGH_BATCHES_VALIDATED = 4
VALIDATIONS_OF_FEW = 5
# With 1,000 pairs 120 epochs were 0.8 BLEU better than 40 (experiments/own_text): a corpus of fewer
# tokens than FEW_TOKENS gets as many updates as one of that size, up to MAX_EPOCHS_OF_FEW.
MAX_EPOCHS = 40
MAX_EPOCHS_OF_FEW = 120
FEW_TOKENS = 57_600
# With fewer updates, batches are halved, and the learning rate is divided by the square root of 2.
ENOUGH_UPDATES = 4000
# Dropout increases with the number of epochs, up to the dropout of the size.
MIN_DROPOUT = 0.05
DROPOUT_PER_EPOCH = 0.01
TOKENS_PER_WORD = 1.4
# Positions of packed rows for short pairs, and for pairs of more than LONG_PAIR tokens on average.
SHORT_ROWS = 64
LONG_ROWS = 128
LONG_PAIR = 24
ROWS_OF_SMALLEST_BATCH = 12


class CorpusStatistics(NamedTuple):
    """The number of pairs of a corpus, and the mean number of words of the longer side."""

    pairs: int
    words_per_pair: float

    @property
    def tokens(self) -> float:
        """Estimated tokens of one side, with EOS."""
        return self.pairs * (self.words_per_pair * TOKENS_PER_WORD + 1)

    @property
    def max_epochs(self) -> float:
        """Epochs after which more training seldom helps."""
        return min(max(MAX_EPOCHS * FEW_TOKENS / max(self.tokens, 1), MAX_EPOCHS), MAX_EPOCHS_OF_FEW)

    @property
    def row_length(self) -> int:
        """Positions of a packed row."""
        return LONG_ROWS if self.tokens > LONG_PAIR * self.pairs else SHORT_ROWS


class Size(NamedTuple):
    """A Transformer and its largest batches, for a size of corpus and budget.

    The corpus has at least ``pairs`` of ``WORDS_OF_A_PAIR``, and the budget trains each parameter
    on ``min_tokens`` or more. The decoder has as many layers as the encoder if ``decoder_layers``
    is 0.
    """

    pairs: int
    min_tokens: int
    layers: int
    d_model: int
    d_ff: int
    num_heads: int
    vocabulary: int
    dropout: float
    learning_rate: float
    tokens_per_update: int
    decoder_layers: int = 0

    @property
    def parameters(self) -> int:
        attention, feed_forward = 4 * self.d_model**2, 2 * self.d_model * self.d_ff
        encoder = self.layers * (attention + feed_forward)
        decoder = (self.decoder_layers or self.layers) * (2 * attention + feed_forward)
        return encoder + decoder + self.vocabulary * self.d_model

    def seconds(self, updates: int, speed: float) -> float:
        """Return the seconds of start-up and of updates with validations, at ``speed`` FLOP/s."""
        return (START_UP + updates * 6 * self.parameters * self.tokens_per_update / SHARE_OF_TIME_IN_UPDATES) / speed

    def affordable_tokens(self, seconds: float, speed: float) -> float:
        """Return the tokens of the updates for which ``seconds`` suffice."""
        return max(seconds * speed - START_UP, 0) * SHARE_OF_TIME_IN_UPDATES / (6 * self.parameters)


KEYS_OF_SIZE = {
    "layers": "model.num_encoder_layers",
    "d_model": "model.d_model",
    "d_ff": "model.d_ff",
    "num_heads": "model.num_heads",
    "vocabulary": "tokenizer.vocabulary_size",
    "dropout": "model.dropout",
    "learning_rate": "optimizer.learning_rate",
    "tokens_per_update": "batching.tokens_per_update",
    "decoder_layers": "model.num_decoder_layers",
}
# Parameters grow as the tokens of the corpus to the power of about 2/3. The fourth row was better
# than the third for 29,000 pairs with an hour (experiments/multi30k). Those below were not run.
SIZES = (
    Size(0, 0, 2, 128, 256, 4, 2000, 0.3, 2.5e-3, 768),
    Size(10_000, 0, 2, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(10_000, 4, 4, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(28_000, 3, 4, 192, 384, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(70_000, 4, 4, 256, 512, 4, 8000, 0.3, 2.5e-3, 2048),
    Size(140_000, 4, 4, 256, 1024, 4, 12_000, 0.2, 1.5e-3, 3072),
    Size(360_000, 4, 6, 320, 1280, 4, 16_000, 0.2, 1.2e-3, 6144),
    Size(600_000, 4, 6, 384, 1536, 6, 24_000, 0.1, 1e-3, 8192),
    Size(1_600_000, 4, 6, 512, 2048, 8, 32_000, 0.1, 7e-4, 12_288),
)
WORDS_OF_A_PAIR = 12


def plan_translation(
    corpus: CorpusStatistics, budget_seconds: float, flops: float, fixed: Mapping[str, Any] | None = None
) -> Plan:
    """Return the plan of the largest size that suits the corpus and is trained on enough tokens.

    If there is none, of the smallest size.

    A larger corpus or budget never gives a smaller size; see ``Plan``. A fixed size of the model
    does not change vocabulary and batches.
    """
    fixed, speed = fixed or {}, EFFICIENCY * flops
    text, others = CorpusStatistics(1, WORDS_OF_A_PAIR).tokens, _without_model(fixed)
    suitable = [SIZES[0]]
    for listed in SIZES:
        size, _ = _with_batches(listed, others, corpus, budget_seconds, speed)
        is_affordable = size.affordable_tokens(budget_seconds, speed) >= size.min_tokens * size.parameters
        if is_affordable and corpus.tokens >= listed.pairs * text:
            suitable.append(listed)
    row = _of_width(suitable[-1], SIZES, fixed)
    size, updates = _with_batches(row, fixed, corpus, budget_seconds, speed)
    updates = fixed.get("training.num_updates") or updates
    if not fixed.get("training.num_updates"):
        _require_enough(budget_seconds, updates, size.seconds(MIN_UPDATES, speed))
    seconds, epochs = size.seconds(updates, speed), updates * size.tokens_per_update / corpus.tokens
    warmup = max(updates // 10, 1)
    affordable_validations = (SHARE_OF_VALIDATIONS * seconds * speed - FIRST_VALIDATION) / (
        VALIDATION * size.parameters
    )
    has_enough = affordable_validations >= ENOUGH_BATCHES_VALIDATED * MAX_VALIDATIONS
    most = MAX_VALIDATIONS if has_enough else VALIDATIONS_OF_FEW
    validations = min(max(int(affordable_validations), MIN_VALIDATIONS), most)
    intervals = update_intervals(updates, validations, MIN_BETWEEN)
    batches_validated = min(max(int(affordable_validations / validations), 1), MAX_BATCHES_VALIDATED)
    # About one minute: a run re-estimates its end at each checkpoint.
    checkpoint_every = max(min(intervals["training.evaluate_every"], int(60 * updates / max(seconds, 1))), 1)
    settings = {key: getattr(size, name) for name, key in KEYS_OF_SIZE.items()} | {
        "batching.kind": "packed",
        "batching.count": "tokens",
        "batching.packed_length": corpus.row_length,
        "batching.width_multiple": 8,
        "data.max_source_tokens": min(191, size.tokens_per_update // 8 - 1),
        "data.max_target_tokens": min(191, size.tokens_per_update // 8 - 1),
        "model.num_decoder_layers": size.decoder_layers or size.layers,
        # Post-norm training collapses at these learning rates: experiments/own_text.
        "model.normalization": "pre",
        "model.dropout": round(min(size.dropout, MIN_DROPOUT + DROPOUT_PER_EPOCH * epochs), 2),
        "model.embedding_dropout": 0.1,
        "optimizer.schedule": SCHEDULE,
        "optimizer.warmup_updates": warmup,
        "optimizer.learning_rate": _rate_of_peak(fixed, size.learning_rate, size.d_model, warmup),
        **intervals,
        "training.checkpoint_every": checkpoint_every,
        "training.validation_sentences": VALIDATED * batches_validated,
    }
    separate = {"output": 1, "none": 2}.get(fixed.get("model.tying", ""), 0) * size.vocabulary * size.d_model
    sentence = (
        f"{corpus.pairs:,} pairs of about {corpus.words_per_pair:.0f} words: {(size.parameters + separate) / 1e6:.1f} million "
        f"parameters, {updates:,} updates ({epochs:.1f} epochs), {minutes_of_this_cpu(seconds)}"
        f"{_left_over(fixed, budget_seconds, seconds, epochs, round(corpus.max_epochs))}"
    )
    max_updates = max(int(corpus.max_epochs * corpus.tokens / size.tokens_per_update), MIN_UPDATES)
    return Plan(settings, seconds, sentence, max_updates)


def _with_batches(
    listed: Size, fixed: Mapping[str, Any], corpus: CorpusStatistics, budget_seconds: float, speed: float
) -> tuple[Size, int]:
    """Return the size with fixed settings, and its number of updates.

    Batches are the largest that allow ``ENOUGH_UPDATES``.
    """
    smallest = ROWS_OF_SMALLEST_BATCH * corpus.row_length
    tokens = max(listed.tokens_per_update, smallest)
    if "batching.tokens_per_update" in fixed:
        # At most the learning rate of the size, which is not known to scale to larger batches.
        smallest = tokens = min(fixed["batching.tokens_per_update"], listed.tokens_per_update)
    while True:
        rate = round(listed.learning_rate * (tokens / listed.tokens_per_update) ** 0.5, 5)
        size = listed._replace(tokens_per_update=tokens, learning_rate=rate)
        size = size._replace(**{name: fixed[key] for name, key in KEYS_OF_SIZE.items() if key in fixed})
        affordable = size.affordable_tokens(budget_seconds, speed) / size.tokens_per_update
        max_updates = max(corpus.max_epochs * corpus.tokens / size.tokens_per_update, MIN_UPDATES)
        updates = max(int(min(affordable, max_updates)), 0)
        if updates >= ENOUGH_UPDATES or tokens <= smallest:
            return size, updates
        tokens //= 2


# Language models and word vectors.
# Measured on two cores of an AMD EPYC (Zen 4).
# The speed of updates relative to small matrix products.
TEXT_EFFICIENCY = 0.7
# Floating-point operations of start-up and compilation at that speed.
TEXT_START_UP = 2e12
TEXT_VALIDATIONS = 5
TEXT_MIN_BETWEEN = 25
# Minimum training tokens for each parameter. 20 are optimal for text without end (Hoffmann et al.
# 2022).
TOKENS_OF_A_PARAMETER = 2.5
# Maximum parameters for each token of the text, in pieces also if the model reads bytes: a larger
# model memorizes the text.
PARAMETERS_OF_A_TOKEN = 8
# After these epochs held-out text got worse in experiments/tiny_shakespeare.
TEXT_MAX_EPOCHS = 20
DROPOUTS = ((2, 0.0), (8, 0.1), (12, 0.2), (16, 0.3), (TEXT_MAX_EPOCHS, 0.4))
"""Dropout by maximum number of epochs; text that is seen only once needs none."""
# Dropout is at most 0.1, or this times the parameters for each token of the text.
DROPOUT_OF_PARAMETERS = 0.06
SHARE_OF_A_VALIDATION = 0.03
CHARACTERS_OF_A_TOKEN = 1.7
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


class DecoderOnlySize(NamedTuple):
    """A decoder-only Transformer and its batches. ``d_ff`` is 4 ``d_model`` unless it is fixed."""

    num_layers: int
    d_model: int
    num_heads: int
    vocabulary_size: int
    context_length: int
    learning_rate: float
    tokens_per_update: int
    d_ff: int = 0

    @property
    def parameters(self) -> int:
        layer = 4 * self.d_model**2 + 2 * self.d_model * self.d_ff
        return self.num_layers * layer + self.vocabulary_size * self.d_model


# Each has at most about twice the parameters of the one before. Rates of Muon; the first and the
# third were run.
DECODER_ONLY_SIZES = (
    DecoderOnlySize(2, 128, 4, 2000, 128, 1e-2, 2048),
    DecoderOnlySize(3, 160, 4, 2000, 128, 1e-2, 2048),
    DecoderOnlySize(4, 192, 4, 2000, 256, 8e-3, 4096),
    DecoderOnlySize(5, 224, 4, 4000, 256, 7e-3, 4096),
    DecoderOnlySize(6, 256, 4, 8000, 256, 6e-3, 8192),
    DecoderOnlySize(6, 320, 5, 10_000, 256, 5e-3, 8192),
    DecoderOnlySize(6, 384, 6, 12_000, 256, 5e-3, 8192),
    DecoderOnlySize(7, 448, 7, 14_000, 512, 4e-3, 16_384),
    DecoderOnlySize(8, 512, 8, 16_000, 512, 4e-3, 16_384),
    DecoderOnlySize(10, 640, 10, 24_000, 1024, 3e-3, 32_768),
    DecoderOnlySize(12, 768, 12, 32_000, 1024, 2.5e-3, 65_536),
)
# The best rate of AdamW as a share of Muon's: experiments/tiny_shakespeare.
SHARE_OF_ADAMW = 0.6
KEYS_OF_DECODER_ONLY = {
    "num_layers": "model.num_layers",
    "d_model": "model.d_model",
    "num_heads": "model.num_heads",
    "vocabulary_size": "tokenizer.vocabulary_size",
    "context_length": "batching.context_length",
    "learning_rate": "optimizer.learning_rate",
    "tokens_per_update": "batching.tokens_per_update",
    "d_ff": "model.d_ff",
}


def plan_language_model(
    text: TextStatistics, budget_seconds: float, flops: float, fixed: Mapping[str, Any] | None = None
) -> Plan:
    """Return the plan of the largest model that suits text and budget, with epochs that help."""
    fixed, speed = fixed or {}, TEXT_EFFICIENCY * flops
    text = text.divided(fixed)
    kind = fixed.get("tokenizer.kind", "bpe" if text.entries(DECODER_ONLY_SIZES[0].vocabulary_size) else "byte")
    tokens = text.num_bytes if kind == "byte" else text.tokens
    suitable, others = [DECODER_ONLY_SIZES[0]], _without_model(fixed)
    for listed in DECODER_ONLY_SIZES:
        # The listed vocabularies, so that more text never gives a smaller model.
        number = _with_fixed(listed, others).parameters
        is_affordable = (budget_seconds * speed - TEXT_START_UP) / (6 * number) >= TOKENS_OF_A_PARAMETER * number
        if is_affordable and number <= PARAMETERS_OF_A_TOKEN * text.tokens:
            suitable.append(listed)
    size = _with_fixed(_of_width(suitable[-1], DECODER_ONLY_SIZES, fixed), fixed)
    entries = BYTES_TO_LEARN_PIECES if kind == "byte" else text.pieces(size.vocabulary_size)
    size = size._replace(vocabulary_size=fixed.get("tokenizer.vocabulary_size", entries))
    if fixed.get("optimizer.name", "muon") != "muon" and "optimizer.learning_rate" not in fixed:
        size = size._replace(learning_rate=size.learning_rate * SHARE_OF_ADAMW)
    flops_of_update = 6 * size.parameters * size.tokens_per_update
    max_updates = max(TEXT_MAX_EPOCHS * tokens / size.tokens_per_update, MIN_UPDATES)
    updates = text_updates(fixed, budget_seconds, flops_of_update, max_updates, speed)
    epochs = updates * size.tokens_per_update / tokens
    by_epochs = next(rate for limit, rate in DROPOUTS if epochs <= limit or limit == TEXT_MAX_EPOCHS)
    dropout = min(by_epochs, max(round(DROPOUT_OF_PARAMETERS * size.parameters / text.tokens, 1), 0.1))
    warmup = min(max(updates // 10, 1), 1000)
    validated = SHARE_OF_A_VALIDATION * updates * size.tokens_per_update * text.documents / tokens
    settings = {KEYS_OF_DECODER_ONLY[name]: value for name, value in size._asdict().items()} | {
        "data.documents": text.documents_are,
        "tokenizer.kind": kind,
        "model.max_positions": size.context_length,
        "model.dropout": dropout,
        "model.embedding_dropout": dropout / 2,
        "optimizer.schedule": SCHEDULE,
        "optimizer.warmup_updates": warmup,
        "optimizer.learning_rate": _rate_of_peak(fixed, size.learning_rate, size.d_model, warmup),
        "training.validation_sentences": int(min(max(validated, 50), 20_000)),
        "decoding.max_new_tokens": size.context_length // 2,
        **update_intervals(updates, TEXT_VALIDATIONS, TEXT_MIN_BETWEEN),
    }
    seconds = (TEXT_START_UP + updates * flops_of_update) / speed
    separate = size.vocabulary_size * size.d_model * (fixed.get("model.tying") == "none")
    pieces = "bytes" if kind == "byte" else f"{size.vocabulary_size:,} pieces"
    sentence = (
        f"{text.text()}: {(size.parameters + separate) / 1e6:.1f} million parameters, vocabulary of {pieces}, "
        f"context of {size.context_length} tokens, dropout {fixed.get('model.dropout', dropout)}, {updates:,} updates "
        f"({epochs:.1f} epochs), {minutes_of_this_cpu(seconds)}"
        f"{_left_over(fixed, budget_seconds, seconds, epochs, TEXT_MAX_EPOCHS)}"
    )
    return Plan(settings, seconds, sentence, int(max_updates))


def text_keys(plan: Callable[[TextStatistics, float, float], Plan]) -> tuple[str, ...]:
    """Return the keys of the settings that a plan of text chooses."""
    any_text = TextStatistics(1e9, 1e9, 2e8, 1e7, 0, 1, 100)
    return (*plan(any_text, 1e9, 1e12).settings, "training.budget_seconds")


def text_updates(
    fixed: Mapping[str, Any], budget: int | float, flops_of_update: int | float, max_updates: int | float, speed: float
) -> int:
    """Return the fixed number of updates, or at most ``max_updates`` that fit the budget.

    ``flops_of_update``: floating-point operations of an update.
    """
    if fixed.get("training.num_updates"):
        return int(fixed["training.num_updates"])
    updates = int(min(max(budget * speed - TEXT_START_UP, 0) / flops_of_update, max_updates))
    _require_enough(budget, updates, (TEXT_START_UP + MIN_UPDATES * flops_of_update) / speed)
    return updates


def _with_fixed(size: DecoderOnlySize, fixed: Mapping[str, Any]) -> DecoderOnlySize:
    """Return the size with fixed settings.

    An update has enough tokens for its rows.
    """
    size = size._replace(**{name: fixed[key] for name, key in KEYS_OF_DECODER_ONLY.items() if key in fixed})
    least = 0 if "batching.tokens_per_update" in fixed else rows_of_batch(fixed) * size.context_length
    return size._replace(tokens_per_update=max(size.tokens_per_update, least), d_ff=size.d_ff or 4 * size.d_model)


def rows_of_batch(fixed: Mapping[str, Any]) -> int:
    """Return the multiple of the rows of a batch."""
    return int(fixed.get("batching.row_multiple", TextBatchingConfig.row_multiple))


TRANSLATION_KEYS = (*plan_translation(CorpusStatistics(10, 10), 1e9, 1e12).settings, "training.budget_seconds")
LANGUAGE_MODEL_KEYS = text_keys(plan_language_model)
"""The settings that a plan chooses."""
