"""Sizes, context and batches of a decoder-only Transformer for a text and a time budget."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformer_jax.config.language_model import TextBatchingConfig
from transformer_jax.tools.sizing.plan import (
    MIN_UPDATES,
    SCHEDULE,
    Plan,
    fitting_heads,
    left_over,
    minutes_of_this_cpu,
    of_width,
    rate_of_peak,
    update_intervals,
    without_model,
)
from transformer_jax.tools.sizing.sizes import Sizing
from transformer_jax.tools.sizing.text_statistics import (
    BYTES_TO_LEARN_PIECES,
    TEXT_EFFICIENCY,
    TEXT_MIN_BETWEEN,
    TEXT_START_UP,
    TEXT_VALIDATIONS,
    TextStatistics,
    plans_text,
    text_keys,
    text_updates,
)

# Minimum training tokens for each parameter. 20 are optimal for text without end (Hoffmann et al.
# 2022).
TOKENS_OF_A_PARAMETER = 2.5
# Maximum parameters for each token of the text, in pieces also if the model reads bytes: a larger
# model memorizes the text.
PARAMETERS_OF_A_TOKEN = 8
# After these epochs held-out text got worse in experiments/tiny_shakespeare.
MAX_EPOCHS = 16
DROPOUTS = ((2, 0.0), (8, 0.1), (12, 0.2), (MAX_EPOCHS, 0.3))
"""Dropout by maximum number of epochs; text that is seen only once needs none."""
# Dropout is at most 0.1, or this times the parameters for each token of the text, in bytes if the
# model reads bytes.
DROPOUT_OF_PARAMETERS = 0.06
SHARE_OF_A_VALIDATION = 0.03


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


# Each has at most about twice the parameters of the one before. Rates of Muon; the first three
# were run.
SIZES = (
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
KEYS_OF_SIZE = {
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
    kind = fixed.get("tokenizer.kind", "bpe" if text.entries(SIZES[0].vocabulary_size) else "byte")
    tokens = text.num_bytes if kind == "byte" else text.tokens
    suitable, others = [SIZES[0]], without_model(fixed)
    for listed in SIZES:
        # The listed vocabularies, so that more text never gives a smaller model.
        number = _with_fixed(listed, others).parameters
        is_affordable = (budget_seconds * speed - TEXT_START_UP) / (6 * number) >= TOKENS_OF_A_PARAMETER * number
        if is_affordable and number <= PARAMETERS_OF_A_TOKEN * text.tokens:
            suitable.append(listed)
    size = _with_fixed(of_width(suitable[-1], SIZES, fixed), fixed)
    entries = BYTES_TO_LEARN_PIECES if kind == "byte" else text.pieces(size.vocabulary_size)
    size = size._replace(vocabulary_size=fixed.get("tokenizer.vocabulary_size", entries))
    if fixed.get("optimizer.name", "muon") != "muon" and "optimizer.learning_rate" not in fixed:
        size = size._replace(learning_rate=size.learning_rate * SHARE_OF_ADAMW)
    flops_of_update = 6 * size.parameters * size.tokens_per_update
    max_updates = max(MAX_EPOCHS * tokens / size.tokens_per_update, MIN_UPDATES)
    updates, seconds = text_updates(fixed, budget_seconds, flops_of_update, max_updates, speed)
    epochs = updates * size.tokens_per_update / tokens
    by_epochs = next(rate for limit, rate in DROPOUTS if epochs <= limit or limit == MAX_EPOCHS)
    dropout = min(by_epochs, max(round(DROPOUT_OF_PARAMETERS * size.parameters / tokens, 1), 0.1))
    warmup = min(max(updates // 10, 1), 1000)
    validated = SHARE_OF_A_VALIDATION * updates * size.tokens_per_update * text.documents / tokens
    settings = {KEYS_OF_SIZE[name]: value for name, value in size._asdict().items()} | {
        "data.documents": text.documents_are,
        "tokenizer.kind": kind,
        "model.max_positions": size.context_length,
        "model.dropout": dropout,
        "model.embedding_dropout": dropout / 2,
        "optimizer.schedule": SCHEDULE,
        "optimizer.warmup_updates": warmup,
        "optimizer.learning_rate": rate_of_peak(fixed, size.learning_rate, size.d_model, warmup),
        "training.validation_sentences": int(min(max(validated, 50), 20_000)),
        "decoding.max_new_tokens": size.context_length // 2,
        **update_intervals(updates, TEXT_VALIDATIONS, TEXT_MIN_BETWEEN),
    }
    separate = size.vocabulary_size * size.d_model * (fixed.get("model.tying") == "none")
    pieces = "bytes" if kind == "byte" else f"{size.vocabulary_size:,} pieces"
    sentence = (
        f"{text.text()}: {(size.parameters + separate) / 1e6:.1f} million parameters, vocabulary of {pieces}, "
        f"context of {size.context_length} tokens, dropout {fixed.get('model.dropout', dropout)}, {updates:,} updates "
        f"({epochs:.1f} epochs), {minutes_of_this_cpu(seconds)}"
        f"{left_over(fixed, budget_seconds, seconds, epochs, MAX_EPOCHS)}"
    )
    return Plan(settings, seconds, sentence, int(max_updates))


def _with_fixed(size: DecoderOnlySize, fixed: Mapping[str, Any]) -> DecoderOnlySize:
    """Return the size with fixed settings.

    An update has enough tokens for its rows.
    """
    size = size._replace(**{name: fixed[key] for name, key in KEYS_OF_SIZE.items() if key in fixed})
    least = 0 if "batching.tokens_per_update" in fixed else rows_of_batch(fixed) * size.context_length
    return size._replace(tokens_per_update=max(size.tokens_per_update, least), d_ff=size.d_ff or 4 * size.d_model)


def rows_of_batch(fixed: Mapping[str, Any]) -> int:
    """Return the multiple of the rows of a batch."""
    return int(fixed.get("batching.row_multiple", TextBatchingConfig.row_multiple))


def _placeholders(fixed: Mapping[str, Any]) -> dict[str, Any]:
    least = max(2, fixed.get("data.evaluation_stride", 0), fixed.get("decoding.max_new_tokens", 0) + 1)
    context = fixed.get("batching.context_length", least)
    sizes = {"batching.tokens_per_update": rows_of_batch(fixed) * context, "decoding.max_new_tokens": 1}
    return {"batching.context_length": context, "model.max_positions": context, **sizes, **fitting_heads(fixed)}


LANGUAGE_MODEL = Sizing(
    "language_model:text",
    text_keys(plan_language_model),
    ("decoder_only",),
    plans_text(plan_language_model),
    _placeholders,
)
