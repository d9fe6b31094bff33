"""Which heads matter: what BLEU and the loss become when each is masked, one at a time (Michel et al. 2019, section 3.2)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError
from transformer_jax.config.errors import natural_order
from transformer_jax.tools.pictures.panels import MatrixPanel, Panel, draw_panels
from transformer_jax.tools.pictures.subject import Subject

SPLIT, SENTENCES = "test", 200
KINDS = ("encoder self", "decoder self", "decoder cross")


class Scores(NamedTuple):
    """Results on a split: BLEU, and the teacher-forced loss in nats a token."""

    bleu: float
    loss: float


class HeadImportance(NamedTuple):
    """Scores of the whole model, and by attention (``encoder_layers_0/self_attention``) those without each head."""

    whole: Scores
    masked: dict[str, list[Scores]]

    def changes(self, kind: str, metric: str) -> np.ndarray:
        """What masking changes, masked minus whole, for a ``kind`` of attention: [layers, heads]."""
        side, _, name = kind.partition(" ")
        rows = [
            [getattr(scores, metric) - getattr(self.whole, metric) for scores in heads]
            for path, heads in self.masked.items()
            if path.startswith(f"{side}_layers") and path.endswith(f"{name}_attention")
        ]
        return np.array(rows)


def head_counts(params: PyTree) -> dict[str, int]:
    """The number of heads of every multi-head attention, by the path of its module, layer 10 after layer 9."""
    counts = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        *module, name = (str(key.key) for key in path)
        if name == "output" and module[-1].endswith("attention"):
            counts["/".join(module)] = leaf.shape[0]
    return {path: counts[path] for path in sorted(counts, key=natural_order)}


def without_head(params: PyTree, attention: str, head: int) -> PyTree:
    """The parameters with the rows of ``head`` in the output projection [H, U, D] of ``attention`` at zero: it adds nothing."""

    def masked(path: Sequence[jax.tree_util.DictKey], leaf: jax.Array) -> jax.Array:
        here = "/".join(str(key.key) for key in path)
        return leaf.at[head].set(0.0) if here == f"{attention}/output" else leaf

    return jax.tree_util.tree_map_with_path(masked, params)


def head_importance(params: PyTree, evaluate: Callable[[PyTree], Scores]) -> HeadImportance:
    """Scores without each head in turn; the others stay as they are, nothing is trained again."""
    masked = {
        attention: [evaluate(without_head(params, attention, head)) for head in range(count)]
        for attention, count in head_counts(params).items()
    }
    return HeadImportance(evaluate(params), masked)


def make(subject: Subject, path: Path) -> list[str]:
    """Draws a map for each kind of attention; the first ``--limit`` sentences of the test split, by default 200."""
    subject.require_translation()
    trained = subject.trained
    if not head_counts(trained.params):
        raise ConfigError(f"--workdir: {subject.name} has no multi-head attention; this figure is of Transformers")
    limit = subject.limit or SENTENCES
    evaluation = replace(trained.config.evaluation, metrics="bleu")
    task = type(trained.task)(replace(trained.config, evaluation=evaluation), trained.tokenizers, trained.mesh)

    def evaluate(params: PyTree) -> Scores:
        metrics = task.evaluate_trained(params, SPLIT, limit=limit).metrics
        return Scores(metrics["bleu"], metrics["loss"])

    found = head_importance(trained.params, evaluate)
    bleu, loss = found.whole
    draw_panels(_panels(found), path, title=f"Without one head; with all: BLEU {bleu:.2f}, loss {loss:.3f}")
    return [f"all heads: BLEU {bleu:.2f}, loss {loss:.4f}; {limit} sentences", *_extremes(found)]


def _panels(found: HeadImportance) -> list[Panel]:
    panels: list[Panel] = []
    for metric, numbers in (("bleu", ".1f"), ("loss", ".2f")):
        limit = max(float(np.abs(found.changes(kind, metric)).max()) for kind in KINDS)
        for kind in KINDS:
            changes = found.changes(kind, metric)
            rows = [f"layer {layer + 1}" for layer in range(len(changes))]
            columns = [f"head {head + 1}" for head in range(changes.shape[1])]
            title = f"{kind}: change of {'BLEU' if metric == 'bleu' else 'loss'}"
            panel = MatrixPanel(
                title, changes, rows=rows, columns=columns, is_signed=True, numbers=numbers, limit=limit
            )
            panels.append(panel)
    return panels


def _extremes(found: HeadImportance) -> list[str]:
    """The three heads without which BLEU is lowest, and how many can go, one at a time, at less than 0.2 BLEU."""
    changes = {}
    for path, heads in found.masked.items():
        side, layer, kind = re.findall(r"(\w+)_layers_(\d+)/(\w+)_attention", path)[0]
        for head, scores in enumerate(heads):
            changes[f"{side} layer {int(layer) + 1}, {kind}, head {head + 1}"] = scores.bleu - found.whole.bleu
    worst = sorted(changes, key=changes.__getitem__)[:3]
    spare = sum(change > -0.2 for change in changes.values())
    return [
        *(f"  without {name}: {changes[name]:+.2f} BLEU" for name in worst),
        f"  {spare} of {len(changes)} cost less than 0.2 BLEU, one at a time",
    ]
