"""Texts of a user: log-probabilities of tokens, attention weights, scores."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import AnyArray, Array, Float, Int, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.models.inspection import ATTENTION_KINDS, attention_maps, layer_number, layers_by_kind
from transformer_jax.models.interface import Module
from transformer_jax.notebook import table
from transformer_jax.registry.index import single_behind
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import Evaluation, task_that
from transformer_jax.training.losses import perplexity

READING_TOKENS = 1024
"""Positions of a batch whose logits are in memory at once. A longer text is one batch."""


class TokenScores(NamedTuple):
    """Tokens of a text, EOS included, and their log-probabilities after the tokens before."""

    pieces: list[str]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """The natural logarithm of the probability of the text."""
        return sum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """Per token: exp(-log-probability / number of tokens)."""
        return perplexity(-self.log_prob, len(self.log_probs))

    def _repr_html_(self) -> str:
        rows = [(piece, f"{log_prob:.3f}") for piece, log_prob in zip(self.pieces, self.log_probs, strict=True)]
        rows.append(("sum", f"{self.log_prob:.3f}"))
        # A blank source with a blank target has no token.
        rows += [("perplexity", f"{self.perplexity:.3f}")] if self.pieces else []
        return table(rows, ("token", "log-probability"))


def token_log_probs(logits: Float[Array, "B T V"], ids: Int[AnyArray, "B T"]) -> Float[Array, "B T"]:
    logits = logits.astype(jnp.float32)
    of_ids = jnp.take_along_axis(logits, ids[:, :, None], axis=2)[:, :, 0]
    return of_ids - jax.nn.logsumexp(logits, axis=2)


class AttentionLayer(NamedTuple):
    """Weights [head, query, key] of one layer, before dropout, with the pieces of their axes.

    ``kind`` is ``cross`` (target to source), ``encoder`` (source to source) or ``decoder`` (target
    to target). ``layer`` is its number in the model, from 1. Row i of a decoder's weights belongs
    to the prediction of target piece i.
    """

    kind: str
    layer: int
    weights: np.ndarray
    queries: list[str]
    keys: list[str]

    @property
    def name(self) -> str:
        """``cross layer 2``."""
        return f"{self.kind} layer {self.layer}"

    @property
    def mean(self) -> np.ndarray:
        """The mean over the heads [query, key]."""
        return self.weights.mean(axis=0)


class Attention(Sequence[AttentionLayer]):
    """The layers of attention between a source and its translation, cross attention first.

    A language model has one text, and a ``translation`` of None.
    """

    def __init__(self, source: str, translation: str | None, layers: Sequence[AttentionLayer]) -> None:
        self.source, self.translation, self.layers = source, translation, tuple(layers)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{kind} {number} {list(weights.shape)}" for kind, number, weights, *_ in self.layers)
        target = "" if self.translation is None else f" -> {self.translation!r}"
        return f"Attention({self.source!r}{target}: {shapes})"

    def _repr_png_(self) -> bytes:
        with TemporaryDirectory() as folder:
            return self.draw(Path(folder) / "attention.png").read_bytes()

    @property
    def title(self) -> str:
        """The text, and its translation on a second line."""
        return self.source if self.translation is None else f"{self.source}\n{self.translation}"

    def of(self, kind: str) -> "Attention":
        """Return the layers of one kind. Raises ConfigError when the model has none."""
        layers = [layer for layer in self.layers if layer.kind == kind]
        if not layers:
            kinds = dict.fromkeys(layer.kind for layer in self.layers)
            raise ConfigError("kind", f"{kind!r} is not one of {', '.join(kinds) or 'none at all'}")
        return Attention(self.source, self.translation, layers)

    def draw(self, path: str | Path, kind: str | None = None) -> Path:
        """Draw all layers and heads of one kind, by default the first one, and return the path."""
        draw = single_behind("draw_attention")
        if draw is None:
            raise ConfigError(
                "draw", "no tool that draws attention is installed", "reinstall the package with all its tools"
            )
        layers = self.of(kind or self.layers[0].kind).layers
        weights = {layer.name: layer.weights for layer in layers}
        return Path(draw(weights, layers[0].queries, layers[0].keys, path, title=self.title))


def attention_layers(
    model: Module, params: PyTree, sides: Sequence[list[int]], axes: Mapping[str, Sequence[str]]
) -> list[AttentionLayer]:
    """Return all attention of a teacher-forced pass.

    ``sides`` are the ids of source and target, or of one text. ``axes`` are the pieces of source,
    target and decoder input.
    """
    tokens = (Tokens.from_ids(np.asarray([ids], np.int32)) for ids in sides)
    maps = layers_by_kind(jax.device_get(jax.jit(partial(attention_maps, model))(params, *tokens)))
    layers = []
    for kind, weights_of in sorted(maps.items(), key=lambda item: item[0] != "cross"):
        _, _, rows, columns = ATTENTION_KINDS[kind]
        queries, keys = [*axes[rows]], [*axes[columns]]
        for path, weights in weights_of.items():
            layers.append(
                AttentionLayer(kind, layer_number(path), weights[0, :, : len(queries), : len(keys)], queries, keys)
            )
    return layers


@runtime_checkable
class ReadsTexts(Protocol):
    """A task whose trained runs read texts of a user."""

    has_targets: bool
    """Whether a text has a target, such as its translation."""

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> Any:
        """Open the files of a text and references, or raise ConfigError or DataError."""

    def evaluate_text(self, params: PyTree, text: Any, name: str) -> Evaluation:
        """Score the result of ``open_text``; the split is called ``text-NAME-DIGEST``."""

    def score_texts(self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None) -> list[TokenScores]:
        """Return the log-probability of each target, or of each text if there are no targets."""

    def attention_of(self, params: PyTree, text: str, target: str | None) -> Attention:
        """Return all attention over a text and its target, by default the model's output."""


def task_that_reads_texts(config: ExperimentConfig, key: str, run: object) -> ReadsTexts:
    """Return the task of ``run``, or raise ConfigError on ``key`` if it reads no user's texts."""
    return task_that(ReadsTexts, config, key, f"{run} is a run of task={config.task}")


def open_text_or_none(
    config: ExperimentConfig, workdir: str | Path, source: str | None, references: Sequence[str], *, has_split: bool
) -> Any:
    """Open a text that is evaluated instead of a split, or return None without ``source``.

    Raises ConfigError for references alone, or with a split (``has_split``), and as
    ``ReadsTexts.open_text``.
    """
    if source is None:
        if references:
            raise ConfigError("--references", "--source and --references belong together", "give both")
        return None
    if has_split:
        raise ConfigError("--split", "--source is another text", "give one of them")
    return task_that_reads_texts(config, "--source", workdir).open_text(config, source, references)


def require_targets(
    config: ExperimentConfig, key: str, run: object, flag: str, *, is_set: bool, is_optional: bool = False
) -> None:
    """Raise ConfigError if ``flag`` has targets that the task does not take, or lacks them.

    Raises ConfigError as ``task_that_reads_texts`` does.
    """
    task = task_that_reads_texts(config, key, run)
    if is_set and not task.has_targets:
        raise ConfigError(flag, "this task reads one text, without its target", "leave it out")
    if task.has_targets and not is_set and not is_optional:
        raise ConfigError(flag, "is required", "give the target of each text")
