"""Signs in the metrics of a run that the model does not learn."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.data import GENERATED_SOURCES
from transformer_jax.files.checked_json import read_checked
from transformer_jax.files.json_text import finite_or_none
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.stored_checkpoints import written_progress
from transformer_jax.runs.metrics_log import read_metrics

# Before twice the warm-up and this share of the updates a model may not have learned yet.
SHARE_OF_UPDATES = 0.2
# Entropy of cross attention, as a share of the entropy of uniform weights.
UNIFORM = 0.98
# Training loss, as a share of the entropy of token frequencies.
GUESSING = 0.98
# Share of distinct outputs among the validation sentences.
MIN_DISTINCT = 0.1
# Own text in experiments/own_text beats guessing after fewer updates than this.
FEW_UPDATES = 300
# With fewer pairs more updates do not help.
FEW_PAIRS = 2000
# A selection metric of at most ZERO in each of the last ZEROS validations.
ZERO = 0.005
ZEROS = 3
# Median gradient norm of the last NUM_NORMS records, in clip norms and in smallest medians so far.
EXPLODED = 20.0
GROWN = 5.0
NUM_NORMS = 10


class LearningSigns:
    """Signs, in the records of ``metrics.jsonl``, that a model does not learn.

    ``report``: the content of ``data.json``.
    """

    def __init__(
        self, config: ExperimentConfig, report: Mapping[str, Any], records: Iterable[Mapping[str, Any]]
    ) -> None:
        self._config = config
        # The loss of guessing tokens by their frequency, nats per token.
        self._unigram_entropy = report.get("unigram_entropy")
        self._num_pairs = report.get("training", {}).get("kept")
        self._step = 0
        self._newest: dict[str, float] = {}
        self._scores: deque[float] = deque(maxlen=ZEROS)
        self._norms: deque[float] = deque(maxlen=NUM_NORMS)
        self._num_norms, self._smallest_norm = 0, math.inf
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        self._step = max(self._step, record["step"])
        finite = {name: value for name, value in record.items() if value is not None and math.isfinite(value)}
        self._newest |= finite
        if self._config.selection.key in finite:
            self._scores.append(finite[self._config.selection.key])
        if "train/gradient_norm" in finite:
            self._norms.append(finite["train/gradient_norm"])
            self._num_norms += 1
            if len(self._norms) == NUM_NORMS:
                self._smallest_norm = min(self._smallest_norm, median(self._norms))

    def sentences(self, num_updates: int = 0) -> list[str]:
        """Return a sentence for each sign after the newest record, none while it is too early.

        It is never too early at the end of a run. ``num_updates``: the length of a shortened run.
        """
        length = num_updates or self._config.training.num_updates
        if self._step < min(max(2 * self._config.optimizer.warmup_updates, SHARE_OF_UPDATES * length), length):
            return []
        signs = self._uniform_attention, self._guessing, self._equal_outputs, self._zero_metric, self._growing_gradient
        return [sentence for sign in signs if (sentence := sign())]

    def _longer_run(self) -> str:
        warmup = self._config.optimizer.warmup_updates
        if self._step < warmup:
            shorter = f"set optimizer.warmup_updates={max(self._step // 10, 1)}, for example, or train longer"
            return f"{self._step} updates end within optimizer.warmup_updates={warmup}, at a small learning rate: {shorter}"
        is_text = self._config.data.source not in GENERATED_SOURCES
        if is_text and isinstance(self._num_pairs, int) and self._num_pairs < FEW_PAIRS:
            return f"{self._num_pairs:,} training pairs are few: give more text, or start from a trained model with init.run"
        advice = f"{self._step} updates are few: train longer, with a larger budget or training.num_updates"
        return advice if self._step < FEW_UPDATES else ""

    def _smaller_updates(self) -> str:
        optimizer = self._config.optimizer
        if self._step < optimizer.warmup_updates:
            return self._longer_run()
        gentler = (
            f"a lower optimizer.learning_rate (now {optimizer.learning_rate:g}) or a longer optimizer.warmup_updates"
        )
        is_post = getattr(self._config.model, "normalization", "") == "post"
        return self._longer_run() or (f"use model.normalization=pre, {gentler}" if is_post else f"use {gentler}")

    def _uniform_attention(self) -> str:
        entropy = self._newest.get("validation/cross_attention_entropy", 0.0)
        if entropy < UNIFORM:
            return ""
        return (
            f"every head of cross attention is uniform (entropy at least {entropy:.3f} ln n), so the output does not depend on "
            f"the words of the source: {self._smaller_updates()}"
        )

    def _guessing(self) -> str:
        loss, entropy = self._newest.get("train/nll", 0.0), self._unigram_entropy
        if entropy is None or loss < GUESSING * entropy:
            return ""
        remedy = self._longer_run() or "change optimizer.learning_rate, and look at the data"
        return (
            f"the training loss, {loss:.3f} nats a token, is no lower than by guessing tokens by their frequency "
            f"({entropy:.3f}): {remedy}"
        )

    def _equal_outputs(self) -> str:
        share = self._newest.get("validation/distinct_outputs", 1.0)
        if share > MIN_DISTINCT:
            return ""
        remedy = self._longer_run() or "look at them, and check that source and target lines belong together"
        return f"different sources get the same output or none (distinct and not empty: {share:.1%}): {remedy}"

    def _zero_metric(self) -> str:
        selection = self._config.selection
        if selection.direction == "minimize" or len(self._scores) < ZEROS or max(map(abs, self._scores)) > ZERO:
            return ""
        return (
            f"validation {selection.label} is {selection.text(self._scores[-1])} for {ZEROS} validations, and selects "
            "checkpoints: if the loss falls, the metric may not suit the target; choose another with the settings evaluation.*"
        )

    def _growing_gradient(self) -> str:
        clip, smallest = self._config.optimizer.clip_norm, self._smallest_norm
        if not clip or self._num_norms < 2 * NUM_NORMS:
            return ""
        now = median(self._norms)
        if now < EXPLODED * clip or now < GROWN * smallest:
            return ""
        return (
            f"the gradient norm is {now:.3g}, {now / clip:.0f} times optimizer.clip_norm, and has grown from {smallest:.3g}: "
            f"{self._smaller_updates()}"
        )


def signs_of(run: RunDirectory, config: ExperimentConfig) -> list[str]:
    """Return the signs of a run, from its log and its data report. Raises DataError if damaged."""
    records = read_metrics(run.metrics)
    report = read_checked(run.data_report) or {}
    try:
        report |= {"unigram_entropy": finite_or_none(report.get("unigram_entropy"))}
        signs = LearningSigns(config, report, records)
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{run.data_report}: not the data report of a run ({error})") from None
    _, progress = next(written_progress(run.checkpoints), (0, {}))
    length = progress.get("counters", {}).get("num_updates", 0)
    is_shortened = length and length != progress["config"]["config"]["training"]["num_updates"]
    return signs.sentences(length if is_shortened else 0)
