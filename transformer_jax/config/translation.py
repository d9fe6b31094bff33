"""Settings of decoding translations, and checks between the blocks of a translation."""

from dataclasses import dataclass
from typing import Literal

from transformer_jax.config.checks import check_settings, setting
from transformer_jax.config.data import (
    BATCH_TOKENS_MEANING,
    BatchingConfig,
    DataConfig,
    TokenizerConfig,
    padded_width,
    require_rows_fit,
)
from transformer_jax.config.model import RnnConfig, TransformerConfig
from transformer_jax.errors import ConfigError


@dataclass(frozen=True)
class DecodingConfig:
    """Decoding of translations (section 6.1): beam search with the penalty of Wu et al. 2016.

    A single device runs two searches at a time, several devices one. A search has ``batch_tokens``
    source positions with padding and all their beams; a longer sentence is a batch of its own.
    ``max_source_tokens`` limits the memory of attention, which is quadratic in the source length.
    """

    search: str = setting("beam", "Search of translations.", plugin="search")
    beam_width: int = setting(4, "Beam width; 1 is greedy search.", at_most=1000)
    length_penalty: float = setting(0.6, "Exponent of the length penalty (Wu et al. 2016, equation 14).", at_least=0)
    stop: Literal["exact", "first_beams"] = setting(
        "exact",
        "Search ends when no unfinished prefix can win (exact), or when beam_width hypotheses are finished (first_beams, "
        "as in most toolkits: faster, may miss the best).",
    )
    compute_dtype: Literal["model", "float32", "float32_exact", "tf32", "bfloat16"] = setting(
        "model",
        "Precision of decoding and of the loss in evaluation; model: model.compute_dtype, but float32 on CPUs. On a "
        "CPU, bfloat16 rounds only the output layer of a Transformer (hidden states times the vocabulary); this is faster on "
        "CPUs with bfloat16 units.",
    )
    max_extra_tokens: int = setting(
        50, "Maximum length of a translation, in tokens beyond its source.", at_most=100_000
    )
    batch_tokens: int = setting(0, BATCH_TOKENS_MEANING, at_least=0, changeable=True)
    max_source_tokens: int = setting(
        4096, "Maximum length of a source in tokens; longer ones are refused.", changeable=True
    )

    def __post_init__(self) -> None:
        check_settings("decoding", self)

    @property
    def search_name(self) -> str:
        """``greedy`` or ``beam 4``."""
        return "greedy" if self.beam_width == 1 else f"beam {self.beam_width}"


def check_translation(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    batching: BatchingConfig,
    model: TransformerConfig | RnnConfig,
    decoding: DecodingConfig,
) -> None:
    """Raise ConfigError when the blocks of a translation are incompatible."""
    if not tokenizer.joint and model.tying not in ("output", "none"):
        problem = f"{model.tying!r} shares both embeddings, which needs tokenizer.joint=True"
        raise ConfigError("model.tying", problem, "or use output or none")
    if data.bpe_dropout and tokenizer.kind != "bpe":
        problem = f"{data.bpe_dropout} leaves out merges of bpe, which {tokenizer.kind} has not"
        raise ConfigError("data.bpe_dropout", problem, "use tokenizer.kind=bpe")
    if data.tags and tokenizer.kind not in ("bpe", "unigram", "mapped"):
        raise ConfigError("data.tags", f"{tokenizer.kind} has no pieces for tags", "use tokenizer.kind=bpe or unigram")
    widest = max(data.max_source_tokens, data.max_target_tokens) + 1
    if batching.kind == "packed":
        length, step = batching.packed_length, batching.width_step
        if not model.can_pack:
            problem = f"packed rows hold several sentences, but model.kind={model.kind} cannot separate them"
            raise ConfigError("batching.kind", problem, "use buckets")
        if batching.count == "positions" and length < widest:
            remedy = "raise it, lower data.max_*_tokens, or set batching.count=tokens"
            raise ConfigError("batching.packed_length", f"{length} positions do not fit a pair of {widest}", remedy)
        if batching.count == "tokens" and length % step:
            problem = f"{length} is not a multiple of batching.width_multiple={step}"
            raise ConfigError("batching.packed_length", problem)
        widest = max(length, widest)
    require_rows_fit(batching.tokens_per_update, batching.row_multiple, widest)
    longest_source, longest_target = data.max_source_tokens + 1, data.max_target_tokens + 1
    needed = max(padded_width(longest_source), longest_source + decoding.max_extra_tokens, longest_target)
    longest = model.longest_sequence
    if longest is not None and longest < needed:
        problem = f"{longest} learned positions are too few to translate the longest sources; use {needed}"
        raise ConfigError("model.max_positions", problem)
    attended = model.attended_positions
    if attended is not None and attended < longest_source:
        problem = f"{attended} is less than the longest source, {longest_source}; or lower data.max_source_tokens"
        raise ConfigError("model.max_attended_positions", problem)
