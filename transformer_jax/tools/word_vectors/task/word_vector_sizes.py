"""Settings of word vectors for a text and a budget."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.tools.sizing.plan import MIN_UPDATES, Plan, minutes_of_this_cpu, update_intervals
from transformer_jax.tools.sizing.sizes import Sizing
from transformer_jax.tools.sizing.text_statistics import (
    TEXT_EFFICIENCY,
    TEXT_MIN_BETWEEN,
    TEXT_VALIDATIONS,
    TextStatistics,
    plans_text,
    text_keys,
    text_updates,
)
from transformer_jax.tools.word_vectors.task.word_vector_settings import SPANS_IN_UPDATE, Word2vecConfig, WordTextConfig

# FLOPs per word and dimension.
OPERATIONS_OF_A_WORD = 1000
# Words of the text per word of a block, at least, since the gradients of a block add up.
TEXT_OF_A_BLOCK = 200
# Words in a row, rows in a block, and blocks in an update, at most.
ROW_LENGTH = 32
MAX_ROWS = 32
MAX_BLOCKS = 32
MIN_UPDATES_OF_AN_EPOCH = 20
# The share of the words of English Wikipedia that have a vector and are left after subsampling.
KEPT_SHARE = 0.8


def plan_word_vectors(
    text: TextStatistics, budget_seconds: float, flops: float, overrides: Mapping[str, Any] | None = None
) -> Plan:
    """Plan dimension, vocabulary and blocks for the size of a text, and epochs within a budget."""
    overrides, speed = overrides or {}, TEXT_EFFICIENCY * flops
    text = text.divided(overrides)
    kind = overrides.get("tokenizer.kind") or ("lower_word" if text.has_words else "bpe")
    has_words = text.has_words and kind not in SUBWORD_KINDS
    words = text.words if has_words else text.tokens
    dimension = overrides.get("model.d_model") or (300 if words >= 1e8 else 100 if words >= 2e6 else 50)
    length = overrides.get("batching.row_length", ROW_LENGTH)
    rows = overrides.get("batching.rows") or _power_of_two(words / TEXT_OF_A_BLOCK / length, MAX_ROWS)
    blocks = _power_of_two(words / MIN_UPDATES_OF_AN_EPOCH / (rows * length), MAX_BLOCKS)
    # Spans are longer than a window.
    least_words = max(4 * ROW_LENGTH, SPANS_IN_UPDATE * (overrides.get("model.window", Word2vecConfig.window) + 1))
    blocks = overrides.get("batching.blocks_per_update") or max(blocks, -(-least_words // (rows * length)))
    words_of_update = rows * length * blocks
    flops_of_update = OPERATIONS_OF_A_WORD * dimension * words_of_update
    words_of_epoch = words * (KEPT_SHARE if overrides.get("data.subsample", WordTextConfig.subsample) else 1.0)
    most = max((5 if words >= 1e7 else 15) * words_of_epoch / words_of_update, MIN_UPDATES)
    updates, seconds = text_updates(overrides, budget_seconds, flops_of_update, most, speed)
    least = overrides.get("tokenizer.min_count") or (5 if words >= 1e6 else 3 if words >= 1e5 else 2)
    settings = {
        "data.documents": text.documents_are,
        "tokenizer.kind": kind,
        "tokenizer.vocabulary_size": 1_000_000 if has_words else text.pieces(8000),
        "tokenizer.min_count": least,
        "batching.rows": rows,
        "batching.row_length": length,
        "batching.blocks_per_update": blocks,
        "model.d_model": dimension,
        **update_intervals(updates, TEXT_VALIDATIONS, TEXT_MIN_BETWEEN),
    }
    unit = "words" if has_words else "pieces"
    kept = f"{unit} of at least {least} occurrences" if least > 1 else f"all {unit}"
    sentence = (
        f"{text.text()}: {dimension} dimensions, {kept}, {updates:,} updates "
        f"({updates * words_of_update / max(words_of_epoch, 1):.1f} epochs), {minutes_of_this_cpu(seconds)}"
    )
    return Plan(settings, seconds, sentence)


def _power_of_two(number: float, most: int) -> int:
    return min(1 << max(int(number), 1).bit_length() - 1, most)


SIZING = Sizing("word_vectors:text", text_keys(plan_word_vectors), ("skip_gram", "cbow"), plans_text(plan_word_vectors))
