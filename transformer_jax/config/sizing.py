"""Size and length of a run from its corpus and the time that it may take: rules of thumb, printed before work starts."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformer_jax.config.errors import ConfigError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Measured with the recipes text and multi30k on two cores of an AMD EPYC (Zen 4): the speed of updates as a part of that of
# small matrix products, and at that speed the floating-point operations of start-up and compilation and, for each parameter,
# of a validation, and those of compiling the first; what validations may take of the time, and what they, batches and
# checkpoints leave of it for updates.
EFFICIENCY, START_UP, VALIDATION, FIRST_VALIDATION = 0.55, 6e12, 1e5, 1.3e12
SHARE_OF_VALIDATIONS, SHARE_OF_UPDATES = 0.05, 0.9
MOST_EPOCHS, FEWEST_UPDATES = 40, 20
# Half of the tokens an update while there would be fewer updates than this; the rate falls with the square root.
ENOUGH_UPDATES = 4000
# Dropout grows with the times that each pair is seen, to that of the size.
LEAST_DROPOUT, DROPOUT_PER_EPOCH = 0.05, 0.01
TOKENS_PER_WORD = 1.4
FEWEST_VALIDATIONS, MOST_VALIDATIONS, FEWEST_BETWEEN = 2, 8, 50


class Corpus(NamedTuple):
    """What the size follows from: pairs, and words of the longer side of one."""

    pairs: int
    words_per_pair: float

    @property
    def tokens(self) -> float:
        """About so many subwords on one side, with an end each."""
        return self.pairs * (self.words_per_pair * TOKENS_PER_WORD + 1)


class Size(NamedTuple):
    """A Transformer and its largest batches, for corpora of at least ``pairs`` and time for ``epochs``."""

    pairs: int
    epochs: int
    layers: int
    d_model: int
    d_ff: int
    num_heads: int
    vocabulary: int
    dropout: float
    learning_rate: float
    tokens_per_update: int

    @property
    def parameters(self) -> int:
        """Of encoder, decoder and the one matrix of the embeddings."""
        layer = 12 * self.d_model**2 + 4 * self.d_model * self.d_ff
        return self.layers * layer + self.vocabulary * self.d_model


FIELDS = {
    "model.num_encoder_layers": "layers",
    "model.d_model": "d_model",
    "model.d_ff": "d_ff",
    "model.num_heads": "num_heads",
    "model.dropout": "dropout",
    "tokenizer.vocabulary_size": "vocabulary",
    "optimizer.learning_rate": "learning_rate",
    "batching.tokens_per_update": "tokens_per_update",
}
SIZES = (
    Size(0, 0, 2, 128, 256, 4, 2000, 0.3, 2.5e-3, 768),
    Size(10_000, 0, 2, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(10_000, 12, 4, 128, 256, 4, 6000, 0.3, 3.5e-3, 1536),
    Size(200_000, 5, 4, 256, 1024, 4, 12_000, 0.2, 1.5e-3, 3072),
    Size(1_000_000, 5, 6, 512, 2048, 8, 32_000, 0.1, 7e-4, 12_288),
)
# Rows hold several pairs: positions of a row for text of short and of long pairs, those of more tokens on average than the last
# number; the smallest batch has twelve such rows.
SHORT_ROWS, LONG_ROWS, LONG_PAIR = 64, 128, 24
ROWS_OF_SMALLEST_BATCH = 12


class Plan(NamedTuple):
    """A size, its number of updates, and the seconds that they are estimated to take."""

    size: Size
    updates: int
    seconds: float
    epochs: float
    validations: int = MOST_VALIDATIONS
    row_length: int = SHORT_ROWS

    def settings(self) -> dict[str, Any]:
        """The settings that follow, by dotted key."""
        # Rounded up: a last validation a few updates after another would tell nothing new.
        size, every = self.size, max(-(-self.updates // self.validations), min(self.updates, FEWEST_BETWEEN))
        return {
            "tokenizer.vocabulary_size": size.vocabulary,
            "batching.tokens_per_update": size.tokens_per_update,
            "batching.kind": "packed",
            "batching.count": "tokens",
            "batching.packed_length": self.row_length,
            "batching.width_multiple": 8,
            "data.max_source_tokens": min(191, size.tokens_per_update // 8 - 1),
            "data.max_target_tokens": min(191, size.tokens_per_update // 8 - 1),
            "model.num_encoder_layers": size.layers,
            "model.num_decoder_layers": size.layers,
            # Post-norm collapses at these rates: experiments/own_text.
            "model.normalization": "pre",
            "model.d_model": size.d_model,
            "model.d_ff": size.d_ff,
            "model.num_heads": size.num_heads,
            "model.dropout": round(min(size.dropout, LEAST_DROPOUT + DROPOUT_PER_EPOCH * self.epochs), 2),
            "model.embedding_dropout": 0.1,
            "optimizer.schedule": "cosine",
            "optimizer.learning_rate": size.learning_rate,
            "optimizer.warmup_updates": max(self.updates // 10, 1),
            "training.num_updates": self.updates,
            "training.evaluate_every": every,
            # At a checkpoint a run estimates its end anew: about every minute.
            "training.checkpoint_every": max(min(every, int(60 * self.updates / max(self.seconds, 1))), 1),
            "training.log_every": min(50, every),
        }

    def text(self, corpus: Corpus) -> str:
        """One line for the terminal."""
        minutes = f"{self.seconds / 60:.0f} minutes" if self.seconds >= 90 else f"{self.seconds:.0f} seconds"
        return (
            f"{corpus.pairs:,} pairs of about {corpus.words_per_pair:.0f} words: {self.size.parameters / 1e6:.1f} million "
            f"parameters, {self.updates:,} updates ({self.epochs:.1f} epochs), about {minutes} of this CPU if it is free"
        )


SIZED = (*Plan(SIZES[0], FEWEST_UPDATES, 0, 0).settings(), "training.budget_seconds")
"""The settings that a plan chooses."""


def seconds_of(budget: str) -> float:
    """``20m`` is 1200.0; raises ConfigError for what is no number with s, m, h or d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", budget.strip())
    if not found or not float(found[1]):
        raise ConfigError(f"--budget: {budget!r} is not a time; write 90s, 20m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def plan_of(corpus: Corpus, budget_seconds: float, flops: float, stated: Mapping[str, Any] | None = None) -> Plan:
    """The largest size that the corpus supports and of which the budget pays the epochs, else the smallest.

    ``flops``: floating-point operations per second of matrix products on this machine; an update makes six of them for each
    parameter and token. ``stated``: settings, by dotted key, that stay as they are.

    Raises ConfigError when the budget does not pay ``FEWEST_UPDATES`` after start-up, and says which would.
    """
    plans = []
    for listed in SIZES:
        if listed.pairs and corpus.pairs < listed.pairs:
            break
        plans.append(_planned(listed, stated or {}, corpus, budget_seconds, EFFICIENCY * flops))
    affordable = [plan for plan in plans if plan.updates >= FEWEST_UPDATES and plan.epochs >= plan.size.epochs]
    chosen = (affordable or plans[:1])[-1]
    length = (stated or {}).get("training.num_updates")
    if length:
        return _plan(chosen.size, length, corpus, EFFICIENCY * flops)
    if chosen.updates < FEWEST_UPDATES:
        least = _seconds(chosen.size, FEWEST_UPDATES, EFFICIENCY * flops)
        raise ConfigError(
            f"--budget: {budget_seconds:.0f} s do not pay start-up, compilation and {FEWEST_UPDATES} updates here; "
            f"give {max(round(least / 60 + 0.5), 1)}m or more"
        )
    return chosen


def _planned(listed: Size, stated: Mapping[str, Any], corpus: Corpus, budget_seconds: float, speed: float) -> Plan:
    """A size with the largest of its batches, halved some times, that leaves ``ENOUGH_UPDATES``."""
    smallest = ROWS_OF_SMALLEST_BATCH * _row_length(corpus)
    tokens = max(listed.tokens_per_update, smallest)
    if "batching.tokens_per_update" in stated:
        # At most the rate of the size: a larger batch is not known to bear more.
        smallest = tokens = min(stated["batching.tokens_per_update"], listed.tokens_per_update)
    while True:
        rate = listed.learning_rate * (tokens / listed.tokens_per_update) ** 0.5
        size = listed._replace(tokens_per_update=tokens, learning_rate=round(rate, 5))
        plan = _affordable(_with_stated(size, stated), corpus, budget_seconds, speed)
        if plan.updates >= ENOUGH_UPDATES or tokens <= smallest:
            return plan
        tokens //= 2


def _row_length(corpus: Corpus) -> int:
    return LONG_ROWS if corpus.tokens > LONG_PAIR * corpus.pairs else SHORT_ROWS


def _affordable(size: Size, corpus: Corpus, budget_seconds: float, speed: float) -> Plan:
    start = _seconds(size, 0, speed)
    paid = (budget_seconds - start) / (_seconds(size, 1, speed) - start)
    most = max(MOST_EPOCHS * corpus.tokens / size.tokens_per_update, FEWEST_UPDATES)
    return _plan(size, max(int(min(paid, most)), 0), corpus, speed)


def _plan(size: Size, updates: int, corpus: Corpus, speed: float) -> Plan:
    seconds = _seconds(size, updates, speed)
    affordable = int((SHARE_OF_VALIDATIONS * seconds * speed - FIRST_VALIDATION) / (VALIDATION * size.parameters))
    validations = min(max(affordable, FEWEST_VALIDATIONS), MOST_VALIDATIONS)
    epochs = updates * size.tokens_per_update / corpus.tokens
    return Plan(size, updates, seconds, epochs, validations, _row_length(corpus))


def _seconds(size: Size, updates: int, speed: float) -> float:
    """Of start-up and so many updates with their validations, at ``speed`` floating-point operations per second."""
    return (START_UP + updates * 6 * size.parameters * size.tokens_per_update / SHARE_OF_UPDATES) / speed


def _with_stated(size: Size, stated: Mapping[str, Any]) -> Size:
    """The size with what a recipe or a flag states instead."""
    changed = {field: stated[key] for key, field in FIELDS.items() if key in stated}
    return size._replace(**changed)
