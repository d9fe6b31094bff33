"""Size and length of a run from its corpus and the time that it may take: rules of thumb, printed before work starts."""

import re
from typing import Any, NamedTuple

from transformer_jax.config.errors import ConfigError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Of what one large matrix product reaches, measured with multi30k:tiny_hour; and of the time, what is left for updates.
EFFICIENCY, SHARE_OF_UPDATES = 0.4, 0.9
FEWEST_EPOCHS, MOST_EPOCHS = 5, 40
TOKENS_PER_WORD = 1.4
VALIDATIONS, FEWEST_BETWEEN = 8, 50


class Corpus(NamedTuple):
    """What the size follows from: pairs, and words of the longer side of one."""

    pairs: int
    words_per_pair: float

    @property
    def tokens(self) -> float:
        """About so many subwords on one side, with an end each."""
        return self.pairs * (self.words_per_pair * TOKENS_PER_WORD + 1)


class Size(NamedTuple):
    """A Transformer and its batches, for corpora of at least so many pairs."""

    pairs: int
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


SIZES = (
    Size(0, 2, 128, 256, 4, 2000, 0.3, 3e-3, 1024),
    Size(10_000, 4, 128, 256, 4, 6000, 0.2, 2.5e-3, 2048),
    Size(200_000, 4, 256, 1024, 4, 12_000, 0.2, 1.5e-3, 4096),
    Size(1_000_000, 6, 512, 2048, 8, 32_000, 0.1, 7e-4, 16_384),
)


class Plan(NamedTuple):
    """A size, its number of updates, and the seconds that they are estimated to take."""

    size: Size
    updates: int
    seconds: float
    epochs: float

    def settings(self) -> dict[str, Any]:
        """The settings that follow, by dotted key."""
        size, every = self.size, max(self.updates // VALIDATIONS, min(self.updates, FEWEST_BETWEEN))
        return {
            "tokenizer.vocabulary_size": size.vocabulary,
            "batching.tokens_per_update": size.tokens_per_update,
            "data.max_source_tokens": min(127, size.tokens_per_update // 8 - 1),
            "data.max_target_tokens": min(127, size.tokens_per_update // 8 - 1),
            "model.num_encoder_layers": size.layers,
            "model.num_decoder_layers": size.layers,
            "model.d_model": size.d_model,
            "model.d_ff": size.d_ff,
            "model.num_heads": size.num_heads,
            "model.dropout": size.dropout,
            "model.embedding_dropout": 0.1,
            "optimizer.schedule": "cosine",
            "optimizer.learning_rate": size.learning_rate,
            "optimizer.warmup_updates": max(self.updates // 10, 1),
            "training.num_updates": self.updates,
            "training.evaluate_every": every,
            "training.checkpoint_every": every,
            "training.log_every": min(50, every),
        }

    def text(self, corpus: Corpus) -> str:
        """One line for the terminal."""
        minutes = f"{self.seconds / 60:.0f} minutes" if self.seconds >= 90 else f"{self.seconds:.0f} seconds"
        return (
            f"{corpus.pairs:,} pairs of about {corpus.words_per_pair:.0f} words: {self.size.parameters / 1e6:.1f} million "
            f"parameters, {self.updates:,} updates ({self.epochs:.1f} epochs), about {minutes} of this CPU if it is free"
        )


def seconds_of(budget: str) -> float:
    """``20m`` is 1200.0; raises ConfigError for what is no number with s, m, h or d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", budget.strip())
    if not found or not float(found[1]):
        raise ConfigError(f"--budget: {budget!r} is not a time; write 90s, 20m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def plan_of(corpus: Corpus, budget_seconds: float, flops: float) -> Plan:
    """The largest size that the corpus supports and of which the budget pays ``FEWEST_EPOCHS``, else the smallest.

    ``flops``: floating-point operations per second of a large matrix product on this machine; an update makes six of them
    for each parameter and token.
    """
    plans = []
    for size in SIZES:
        if size.pairs and corpus.pairs < size.pairs:
            break
        seconds_per_update = 6 * size.parameters * size.tokens_per_update / (EFFICIENCY * flops)
        per_epoch = corpus.tokens / size.tokens_per_update
        updates = min(budget_seconds * SHARE_OF_UPDATES / seconds_per_update, MOST_EPOCHS * per_epoch)
        updates = max(int(updates), 20)
        plans.append(Plan(size, updates, updates * seconds_per_update / SHARE_OF_UPDATES, updates / per_epoch))
    affordable = [plan for plan in plans if plan.epochs >= FEWEST_EPOCHS]
    return (affordable or plans[:1])[-1]
