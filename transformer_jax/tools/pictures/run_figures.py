"""Figures of trained runs: the effect of masking each head, and the loss by target length.

Michel et al. 2019, section 3.2; Vaswani et al. 2017, section 3.5.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import EOS_ID, PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.batches import token_rows
from transformer_jax.data.pair_encoding import joined
from transformer_jax.models.inspection import head_counts, layer_number, layers_by_kind, without_head
from transformer_jax.sequence_types import Batch
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.panels import LinePanel, MatrixPanel, Panel, draw_panels
from transformer_jax.tools.study.comparability import differing_settings

TEST, SENTENCES = "test", 200
# Kinds of attention, and their titles.
KINDS = {"encoder": "encoder self", "decoder": "decoder self", "cross": "decoder cross"}
ROWS, FEWEST = 32, 3


class Scores(NamedTuple):
    """Results on a split: BLEU, and the teacher-forced loss in nats per token."""

    bleu: float
    loss: float


Changes = dict[str, dict[str, np.ndarray]]
"""Scores without each head minus scores of the whole model [H, 2], by kind of attention and path of its module."""


def attention_heads(params: PyTree, layers: Mapping[str, tuple[list[int], int]]) -> dict[str, int]:
    """The number of heads of each attention by module path; ``layers``: ``attention_layers`` of the model's settings."""
    kinds = layers_by_kind(head_counts(params)).items()
    return {path: n for kind, each in kinds for path, n in each.items() if layer_number(path) in layers[kind][0]}


def head_importance(
    params: PyTree, heads: Mapping[str, int], evaluate: Callable[[PyTree], Scores]
) -> tuple[Scores, Changes]:
    """Scores of the whole model, and their changes without each of ``heads`` in turn, without further training."""
    whole = evaluate(params)
    changes = {
        path: np.array([np.subtract(evaluate(without_head(params, path, head)), whole) for head in range(count)])
        for path, count in heads.items()
    }
    return whole, layers_by_kind(changes)


def draw_heads(subject: Subject, path: Path) -> list[str]:
    """Draws a map for each kind of attention from the first ``limit`` (default 200) sentences of the test split."""
    subject.require_translation()
    trained = subject.trained
    heads = attention_heads(trained.params, trained.config.model.attention_layers)
    if not heads:
        raise ConfigError(f"--workdir: {subject.name} has no multi-head attention; give a Transformer")
    limit = subject.limit or SENTENCES
    evaluation = replace(trained.config.evaluation, metrics="bleu")
    task = type(trained.task)(replace(trained.config, evaluation=evaluation), trained.tokenizers, trained.mesh)

    def evaluate(params: PyTree) -> Scores:
        metrics = task.evaluate(params, TEST, limit=limit).metrics
        return Scores(metrics["bleu"], metrics["loss"])

    (bleu, loss), changes = head_importance(trained.params, heads, evaluate)
    draw_panels(_head_panels(changes), path, title=f"Without one head; with all: BLEU {bleu:.2f}, loss {loss:.3f}")
    count = len(task.evaluator.pairs(trained.config.data.split_name(TEST), limit))
    return [f"all heads: BLEU {bleu:.2f}, loss {loss:.4f}; {count} sentences", *_extreme_heads(changes)]


def _head_panels(changes: Changes) -> list[Panel]:
    panels: list[Panel] = []
    for index, (metric, numbers) in enumerate((("BLEU", ".1f"), ("loss", ".2f"))):
        matrices = {kind: np.stack([*layers.values()])[:, :, index] for kind, layers in changes.items()}
        limit = max(float(np.abs(matrix).max()) for matrix in matrices.values())
        for kind, matrix in matrices.items():
            rows = [f"layer {layer_number(path)}" for path in changes[kind]]
            columns = [f"head {head + 1}" for head in range(matrix.shape[1])]
            title = f"{KINDS[kind]}: change of {metric}"
            panel = MatrixPanel(title, matrix, "", "", rows, columns, is_signed=True, numbers=numbers, limit=limit)
            panels.append(panel)
    return panels


def _extreme_heads(changes: Changes) -> list[str]:
    """The three heads without which BLEU is lowest, and the number of heads that cost less than 0.2 BLEU each."""
    of_heads = {
        f"{KINDS[kind]}, layer {layer_number(path)}, head {head + 1}": bleu
        for kind, layers in changes.items()
        for path, heads in layers.items()
        for head, (bleu, _) in enumerate(heads)
    }
    worst = sorted(of_heads, key=of_heads.__getitem__)[:3]
    spare = sum(change > -0.2 for change in of_heads.values())
    return [
        *(f"  without {name}: {of_heads[name]:+.2f} BLEU" for name in worst),
        f"  {spare} of {len(of_heads)} cost less than 0.2 BLEU, one at a time",
    ]


class LengthNumbers(NamedTuple):
    """Mean ``loss`` [N], in nats per token, of the ``counts`` [N] sentences whose targets have ``lengths`` [N] tokens."""

    lengths: np.ndarray
    loss: np.ndarray
    counts: np.ndarray

    @property
    def drawn(self) -> "LengthNumbers":
        """Only lengths with at least ``FEWEST`` sentences; raises DataError if there are none."""
        chosen = self.counts >= FEWEST
        if not chosen.any():
            raise DataError(f"data: no target length has {FEWEST} sentences; raise --limit (0: all) to read more")
        return LengthNumbers(*(values[chosen] for values in self))


def loss_by_length(trained: Any, limit: int = 0) -> LengthNumbers:
    """Teacher-forced loss of a restored run on the validation split by target length, EOS included."""
    tokenizers = trained.tokenizers
    groups: dict[int, list[tuple[list[int], list[int]]]] = {}
    for pair in trained.task.evaluator.pairs(trained.config.data.split_name("validation"), limit):
        source, target = tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)
        groups.setdefault(len(target) + 1, []).append(([*source, EOS_ID], [*target, EOS_ID]))
    loss = jax.jit(trained.task.objective.unsmoothed_loss)
    width = max(len(side) for members in groups.values() for pair in members for side in pair)
    rows = []
    for length, members in sorted(groups.items()):
        sums = [loss(trained.params, batch) for batch in _batches(members, width)]
        rows.append((length, sum(float(each.nll) for each in sums) / (length * len(members)), len(members)))
    lengths, losses, counts = np.array(rows).T
    return LengthNumbers(lengths.astype(int), losses, counts.astype(int))


def _batches(pairs: list[tuple[list[int], list[int]]], width: int) -> Iterator[Batch]:
    """Batches of one shape, for one compiled program; the last has rows of padding."""
    for part in itertools.batched(pairs, ROWS):
        offsets = np.minimum(np.arange(ROWS + 1), len(part))
        yield Batch(*(token_rows(joined([pair[side] for pair in part]), offsets, width) for side in (0, 1)))


def names_of(folders: Sequence[str], configs: Sequence[ExperimentConfig]) -> list[str]:
    """Names of runs: the values of the one or two settings in which they differ, or else their folders."""
    settings = differing_settings(configs)
    values = [", ".join(column) for column in zip(*settings.values(), strict=True)]
    return values if 1 <= len(settings) <= 2 and len(set(values)) == len(folders) else list(folders)


def draw_lengths(subject: Subject, path: Path) -> list[str]:
    """Draws a line for the run and each of ``others``, and dotted lines at their maximum lengths in training."""
    subject.require_translation()
    runs = (subject, *subject.others)
    names = names_of([run.name for run in runs], [run.config for run in runs])
    found = {name: loss_by_length(run.trained, limit=subject.limit) for name, run in zip(names, runs, strict=True)}
    limits = {name: run.config.data.max_target_tokens + 1 for name, run in zip(names, runs, strict=True)}
    drawn = {name: numbers.drawn for name, numbers in found.items()}
    highest = max(float(numbers.loss.max()) for numbers in drawn.values())
    longest = max(int(numbers.lengths.max()) for numbers in drawn.values())
    lines = {name: (numbers.lengths, numbers.loss) for name, numbers in drawn.items()}
    ends = {}
    for limit in sorted({each for each in limits.values() if each < longest}):
        of = [name for name, each in limits.items() if each == limit]
        title = "longest in training" + f": {', '.join(of)}" * (len(of) < len(runs))
        ends[title] = np.array([limit] * 2), np.array([0.0, highest])
    panel = LinePanel(
        "Loss by target length",
        lines | ends,
        "target tokens, EOS included",
        "nats per token",
        dotted=tuple(ends),
    )
    draw_panels([panel], path, title="Loss against length")
    return [_length_summary(name, numbers, limits[name]) for name, numbers in found.items()]


def _length_summary(name: str, numbers: LengthNumbers, longest_trained: int) -> str:
    """Mean losses, weighted by tokens, over lengths seen in training and over longer ones."""
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
