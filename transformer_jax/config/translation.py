"""The checks that involve more than one block of the settings of a translation."""

from transformer_jax.config.checks import require
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.config.decoding import DecodingConfig
from transformer_jax.config.model import TransformerConfig
from transformer_jax.config.rnn import RnnConfig
from transformer_jax.config.widths import padded_width


def check_translation(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    batching: BatchingConfig,
    model: TransformerConfig | RnnConfig,
    decoding: DecodingConfig,
) -> None:
    """Raises ConfigError when the blocks of a translation exclude each other."""
    _check_tying(tokenizer, model)
    _check_batches(data, batching, model)
    _check_positions(data, model, decoding)
    _check_attended_positions(data, model)


def _check_tying(tokenizer: TokenizerConfig, model: TransformerConfig | RnnConfig) -> None:
    can_tie = tokenizer.joint or model.tying in ("output", "none")
    remedy = f"{model.tying!r} shares the source and target embeddings, which needs tokenizer.joint=True; or use output or none"
    require(can_tie, "model.tying", remedy)


def _check_batches(data: DataConfig, batching: BatchingConfig, model: TransformerConfig | RnnConfig) -> None:
    widest = max(data.max_source_tokens, data.max_target_tokens) + 1
    if batching.kind == "packed":
        problem = f"packed rows hold several sentences, which model.kind={model.kind} cannot separate; use buckets"
        require(model.can_pack, "batching.kind", problem)
        if batching.count == "positions":
            remedy = "raise it, lower data.max_*_tokens, or set batching.count=tokens, where long pairs get wider rows"
            problem = f"{batching.packed_length} positions do not hold a pair of {widest}; {remedy}"
            require(batching.packed_length >= widest, "batching.packed_length", problem)
        else:
            problem = f"{batching.packed_length} is not a multiple of batching.width_multiple={batching.width_multiple}"
            require(batching.packed_length % batching.width_multiple == 0, "batching.packed_length", problem)
        widest = max(batching.packed_length, widest)
    fits = batching.tokens_per_update >= widest * batching.row_multiple
    problem = (
        f"{batching.tokens_per_update} is less than batching.row_multiple={batching.row_multiple} rows of "
        f"{widest} positions; raise it to {widest * batching.row_multiple} or lower data.max_*_tokens"
    )
    require(fits, "batching.tokens_per_update", problem)


def _check_positions(data: DataConfig, model: TransformerConfig | RnnConfig, decoding: DecodingConfig) -> None:
    longest_source, longest_target = data.max_source_tokens + 1, data.max_target_tokens + 1
    needed = max(padded_width(longest_source), longest_source + decoding.max_extra_tokens, longest_target)
    longest = model.longest_sequence
    fits = longest is None or longest >= needed
    problem = f"{longest} learned positions are too few to translate the longest sources; use {needed}"
    require(fits, "model.max_positions", problem)


def _check_attended_positions(data: DataConfig, model: TransformerConfig | RnnConfig) -> None:
    if model.attended_positions is not None:
        positions, longest = model.attended_positions, data.max_source_tokens + 1
        remedy = "raise it, or lower data.max_source_tokens"
        problem = f"{positions} leaves the end of sources of up to {longest} tokens unseen; {remedy}"
        require(positions >= longest, "model.max_attended_positions", problem)
