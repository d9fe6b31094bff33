"""The trials of each row as one: over seeds, and with what a row costs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from effects import Spread, spread
from sacrebleu.metrics import BLEU
from trials import Trial

from transformer_jax.evaluation.significance import Estimate

Value = str | int | float | bool


class RowResult(NamedTuple):
    """A row: ``bleu`` over seeds, ``interval`` the same mean with what other sentences would have
    changed.

    ``flops`` counts the matrix products of one whole training, padding included.
    """

    perplexity: Spread
    bleu: Spread
    interval: Estimate
    parameters: int
    flops: float
    updates_per_second: float
    flops_per_second_of_a_device: float


def row_results(trials: Sequence[Trial], resamples: int = 1000) -> dict[str, RowResult]:
    """By row, in the order in which they come."""
    rows = dict.fromkeys(trial.row for trial in trials)
    return {row: row_result([trial for trial in trials if trial.row == row], resamples) for row in rows}


def row_result(trials: Sequence[Trial], resamples: int) -> RowResult:
    """Of trials that differ in their seed alone."""
    updates, seconds = sum(trial.updates for trial in trials), sum(trial.update_seconds for trial in trials)
    computed = sum(trial.updates * trial.update_flops for trial in trials)
    return RowResult(
        perplexity=spread([trial.perplexity for trial in trials]),
        bleu=spread([trial.bleu for trial in trials]),
        interval=mean_bleu([trial.hypotheses for trial in trials], trials[0].references, resamples),
        parameters=trials[0].parameters,
        flops=computed / len(trials),
        updates_per_second=updates / seconds,
        flops_per_second_of_a_device=computed / sum(trial.update_seconds * trial.devices for trial in trials),
    )


def mean_bleu(
    systems: Sequence[Sequence[str]], references: Sequence[str], resamples: int, seed: int = 12345
) -> Estimate:
    """The mean BLEU of translations of the same sentences by models that differ in their seed, with
    95 % of the resamples.

    Every resample draws as many sentences as there are, with replacement, the same for all systems:
    the bounds say what other sentences would change, not what other seeds would.
    """
    metric = BLEU(force=True)
    counts = [np.array(metric._extract_corpus_statistics(list(lines), [list(references)]), float) for lines in systems]

    def mean(times: np.ndarray) -> float:
        return float(np.mean([metric._compute_score_from_stats((times @ each).tolist()).score for each in counts]))

    generator, size = np.random.default_rng(seed), len(references)
    drawn = sorted(mean(np.bincount(generator.choice(size, size), minlength=size)) for _ in range(resamples))
    outside = resamples // 40
    return Estimate(mean(np.ones(size)), lower=drawn[outside], upper=drawn[-1 - outside])


def changes(row: Mapping[str, Value], base: Mapping[str, Value]) -> str:
    """In what a row is not the base: ``num_heads=1``; a key of which the base says nothing
    counts."""
    changed = {key: value for key, value in row.items() if base.get(key) != value}
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in changed.items())
