"""Signs in the log of a run that the model does not learn, each as a sentence with the numbers and the remedy."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.metrics_log import read_metrics
from transformer_jax.runs.run_directory import RunDirectory

Record = Mapping[str, Any]

# Attention is uniform before the first update; a model has begun to learn after twice the warm-up and a fifth of the updates.
UNIFORM, SHARE_OF_UPDATES = 0.98, 0.2
GUESSING, FEWEST_DISTINCT = 0.98, 0.1
ZERO, ZEROS = 0.005, 3
EXPLODED, GROWN, NORMS = 20.0, 5.0, 10


def signs(
    records: Sequence[Record],
    config: ExperimentConfig,
    unigram_entropy: float | None = None,
    num_updates: int | None = None,
) -> list[str]:
    """The signs that hold after the newest of ``records`` (``metrics.jsonl``); none before the model can have learned.

    ``unigram_entropy``: the loss of guessing tokens by their frequency, nats per token; ``num_updates``: the length of the run
    where that is not as configured. At the end of a run the signs hold however short it was.
    """
    step = max((record["step"] for record in records), default=0)
    length = num_updates or config.training.num_updates
    if step < min(max(2 * config.optimizer.warmup_updates, SHARE_OF_UPDATES * length), length):
        return []
    newest = {name: value for record in records for name, value in record.items() if value is not None}
    found = (
        _uniform_attention(newest, config),
        _guessing(newest, unigram_entropy),
        _equal_outputs(newest),
        _zero_metric(records, config),
        _growing_gradient(records, config),
    )
    return [sentence for sentence in found if sentence]


def signs_of(run: RunDirectory, config: ExperimentConfig, num_updates: int | None = None) -> list[str]:
    """The signs of a run, from its log and the report on its data. Raises DataError when one of them is damaged.

    ``num_updates``: its length where that is not as configured.
    """
    try:
        entropy = parse_json(run.data_report.read_bytes()).get("unigram_entropy") if run.data_report.is_file() else None
    except (ValueError, AttributeError):
        raise DataError(f"{run.data_report}: not the report on data that a run keeps") from None
    return signs(read_metrics(run.metrics), config, entropy, num_updates)


def _slower(config: ExperimentConfig) -> str:
    """The remedy for an update that is too large."""
    gentler = (
        f"a lower optimizer.learning_rate (now {config.optimizer.learning_rate:g}) or a longer optimizer.warmup_updates"
    )
    is_post = getattr(config.model, "normalization", "") == "post"
    return f"use model.normalization=pre, {gentler}" if is_post else f"use {gentler}"


def _uniform_attention(newest: Record, config: ExperimentConfig) -> str:
    entropy = newest.get("validation/cross_attention_entropy", 0.0)
    if entropy < UNIFORM:
        return ""
    return (
        f"every head of cross attention is uniform (entropy at least {entropy:.3f} ln n), so the output does not depend on the "
        f"words of the source: {_slower(config)}"
    )


def _guessing(newest: Record, unigram_entropy: float | None) -> str:
    loss = newest.get("train/nll", 0.0)
    if unigram_entropy is None or loss < GUESSING * unigram_entropy:
        return ""
    return (
        f"the training loss, {loss:.3f} nats a token, is no lower than by guessing tokens by their frequency "
        f"({unigram_entropy:.3f}): change optimizer.learning_rate, and look at the data"
    )


def _equal_outputs(newest: Record) -> str:
    share = newest.get("validation/distinct_outputs", 1.0)
    if share > FEWEST_DISTINCT:
        return ""
    return (
        f"different sources get the same output or none (distinct and not empty: {share:.1%}): look at them, and "
        "whether source and target lines belong together"
    )


def _zero_metric(records: Sequence[Record], config: ExperimentConfig) -> str:
    selection = config.selection
    values = [record[selection.key] for record in records if record.get(selection.key) is not None]
    if selection.direction == "minimize" or len(values) < ZEROS or max(values[-ZEROS:]) > ZERO:
        return ""
    return (
        f"validation {selection.label} is {selection.text(values[-1])} for {ZEROS} validations, and selects checkpoints: where "
        "the loss falls, the metric may not fit the target: choose another by the settings evaluation.*"
    )


def _growing_gradient(records: Sequence[Record], config: ExperimentConfig) -> str:
    clip = config.optimizer.clip_norm
    norms = [record["train/gradient_norm"] for record in records if record.get("train/gradient_norm") is not None]
    if not clip or len(norms) < 2 * NORMS:
        return ""
    now, least = median(norms[-NORMS:]), min(map(median, zip(*(norms[i:] for i in range(NORMS)), strict=False)))
    if now < EXPLODED * clip or now < GROWN * least:
        return ""
    return (
        f"the gradient norm is {now:.3g}, {now / clip:.0f} times optimizer.clip_norm, and has grown from {least:.3g}: "
        f"{_slower(config)}"
    )
