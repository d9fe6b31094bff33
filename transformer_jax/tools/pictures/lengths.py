"""The loss against the length of the target: how far untrained positions reach (Vaswani et al. 2017, section 3.5)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.data.batches import token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.sequence_types import Batch
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.tools.pictures.subject import Subject
from transformer_jax.tools.reports.run_report import differing_settings

SPLIT, ROWS, FEWEST = "validation", 32, 3


class LengthNumbers(NamedTuple):
    """Mean ``loss`` [N] in nats a token of sentences whose targets have ``lengths`` [N] tokens, and ``counts`` [N] of them."""

    lengths: np.ndarray
    loss: np.ndarray
    counts: np.ndarray

    @property
    def drawn(self) -> "LengthNumbers":
        """Those of at least three sentences: the mean of fewer says little. Raises DataError where there are none."""
        chosen = self.counts >= FEWEST
        if not chosen.any():
            raise DataError(
                f"data: no length of target has {FEWEST} sentences; read more of them: raise --limit, or 0 for all"
            )
        return LengthNumbers(*(values[chosen] for values in self))


def loss_by_length(trained: Any, split: str = SPLIT, limit: int = 0) -> LengthNumbers:
    """Teacher-forced loss of a restored run, for every length of target, EOS included."""
    config, tokenizers = trained.config, trained.tokenizers
    pairs = trained.task.evaluator.pairs(config.data.split_name(split), limit)
    ids = [
        ([*tokenizers.source.encode(pair.source), EOS_ID], [*tokenizers.target.encode(pair.target), EOS_ID])
        for pair in pairs
    ]
    loss = jax.jit(trained.task.objective.unsmoothed_loss)
    groups: dict[int, list[tuple[list[int], list[int]]]] = {}
    for source, target in ids:
        groups.setdefault(len(target), []).append((source, target))
    width = max(len(side) for pair in ids for side in pair)
    rows = []
    for length, members in sorted(groups.items()):
        sums = [loss(trained.params, batch) for batch in _batches(members, width)]
        rows.append((length, sum(float(each.nll) for each in sums) / (length * len(members)), len(members)))
    lengths, losses, counts = np.array(rows).T
    return LengthNumbers(lengths.astype(int), losses, counts.astype(int))


def _batches(pairs: list[tuple[list[int], list[int]]], width: int) -> Iterator[Batch]:
    """Batches of one shape, so that one program serves all; the last has rows of padding."""
    for start in range(0, len(pairs), ROWS):
        part = pairs[start : start + ROWS]
        offsets = np.minimum(np.arange(ROWS + 1), len(part))
        yield Batch(*(token_rows(joined([pair[side] for pair in part]), offsets, width) for side in (0, 1)))


def names_of(folders: Sequence[str], configs: Sequence[ExperimentConfig]) -> list[str]:
    """Runs by the settings in which they differ, where these are few and tell them apart; else by their folders."""
    settings = differing_settings(configs)
    values = [", ".join(column) for column in zip(*settings.values(), strict=True)]
    return values if 1 <= len(settings) <= 2 and len(set(values)) == len(folders) else list(folders)


def make(subject: Subject, path: Path) -> list[str]:
    """Draws a line for the run and each of ``--others``; a dotted one where the lengths of its training end."""
    subject.require_translation()
    runs = (subject, *subject.others)
    names = names_of([run.name for run in runs], [run.config for run in runs])
    found = {name: loss_by_length(run.trained, limit=subject.limit) for name, run in zip(names, runs, strict=True)}
    longest_trained = subject.config.data.max_target_tokens + 1
    drawn = {name: numbers.drawn for name, numbers in found.items()}
    highest = max(float(numbers.loss.max()) for numbers in drawn.values())
    lines = {name: (numbers.lengths, numbers.loss) for name, numbers in drawn.items()}
    end = {"longest in training": (np.array([longest_trained] * 2), np.array([0.0, highest]))}
    is_beyond = longest_trained < max(int(numbers.lengths.max()) for numbers in drawn.values())
    panel = LinePanel(
        "Loss of sentences of a length",
        lines | (end if is_beyond else {}),
        "target tokens, EOS included",
        "nats a token",
        dotted=tuple(end),
    )
    draw_panels([panel], path, title="Loss against length")
    return [_summary(name, numbers, longest_trained) for name, numbers in found.items()]


def _summary(name: str, numbers: LengthNumbers, longest_trained: int) -> str:
    """Means over the lengths of training and over those beyond it, weighted by tokens; every sentence counts."""
    tokens = numbers.lengths * numbers.counts
    parts = []
    for title, chosen in (
        (f"up to {longest_trained} tokens", numbers.lengths <= longest_trained),
        ("longer", numbers.lengths > longest_trained),
    ):
        if chosen.any():
            mean = float((numbers.loss * tokens)[chosen].sum() / tokens[chosen].sum())
            parts.append(f"{title}: {mean:.3f} ({numbers.counts[chosen].sum():,} sentences)")
    return f"{name}: loss {'; '.join(parts)}"
