"""Comparison of a run with the same model in another toolkit: outputs and greedy translations."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import load_tokenizers
from transformer_jax.tools.interop.models import ROWS_AT_ONCE, Example, OpenedModel

# Rounding can change the order of logits with a smaller difference.
NEAR_TIE = 1e-3
# Logits at most this low belong to ids that one side lacks: see ``fairseq_family.MISSING_LOGIT``.
NEVER = -500.0
DIVERGENCES_SHOWN = 10


class Tolerance(NamedTuple):
    """Bounds of the largest and mean difference, and the least share of equal translations."""

    largest: float
    mean: float
    greedy: float = 1.0


class Check(NamedTuple):
    """A further comparison by one format: both sides agree in ``agreeing`` of ``total`` cases."""

    name: str
    agreeing: int
    total: int


class Counterpart:
    """The model in another toolkit, with the token ids of the run.

    ``compares_logits``: whether outputs are logits, and not log-probabilities. ``longest``: maximum
    number of tokens of a source or target with EOS, or None.
    """

    name = ""
    compares_logits = True
    longest: int | None = None
    tolerance = Tolerance(0.0, 0.0)

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Return the logits [T, V] for each target, or the log-probabilities [T] of its tokens."""
        raise NotImplementedError

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """Translate sources greedily, without EOS, in at most ``longest`` tokens."""
        raise NotImplementedError

    def checks(self, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Return further comparisons on ``texts`` and their tokens."""
        del texts, examples
        return []


def require_same_tokenizers(folder: Path, model: OpenedModel) -> None:
    """Raise DataError unless ``folder`` has the tokenizers of the run."""
    for side, theirs, ours in zip(("source", "target"), load_tokenizers(folder), model.tokenizers, strict=True):
        if theirs.fingerprint() != ours.fingerprint():
            sizes = f"{theirs.vocabulary_size:,} pieces there, {ours.vocabulary_size:,} here"
            raise DataError(f"{folder}: the {side} tokenizer differs from the run's ({sizes}); give the same model")


class Divergence(NamedTuple):
    """A greedy translation that differs: sentence and first different token, counted from 1.

    ``gap``: difference between the run's logits of the two tokens.
    """

    sentence: int
    token: int
    gap: float

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding can explain it."""
        return abs(self.gap) < NEAR_TIE


class Comparison(NamedTuple):
    """The largest and the mean difference of outputs, and the greedy translations that differ.

    ``divergences``: None for a language model. ``left_out``: number of texts that are too long for
    the counterpart.
    """

    counterpart: str
    compares_logits: bool
    tolerance: Tolerance
    sentences: int
    tokens: int
    longest: int
    largest: float
    mean: float
    divergences: tuple[Divergence, ...] | None
    checks: tuple[Check, ...]
    left_out: int = 0

    @property
    def holds(self) -> bool:
        """Whether all differences are within the tolerance, and all further checks pass."""
        is_near = self.largest <= self.tolerance.largest and self.mean <= self.tolerance.mean
        agrees = self.divergences is None or self.agreeing >= self.tolerance.greedy * self.sentences
        return is_near and agrees and all(check.agreeing == check.total for check in self.checks)

    @property
    def agreeing(self) -> int:
        """Number of greedy translations that are equal or differ at a near tie."""
        return self.sentences - sum(not divergence.is_near_tie for divergence in self.divergences or ())

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table: name, value and remark."""
        compared = "logit" if self.compares_logits else "log-probability of a token"
        rows = [
            ("compared with", self.counterpart, "this package in float32"),
            ("sentences", f"{self.sentences:,}", f"{self.tokens:,} target tokens, the longest target {self.longest}"),
            ("largest difference", f"{self.largest:.2g}", f"of a {compared}; at most {self.tolerance.largest:g}"),
            ("mean difference", f"{self.mean:.2g}", f"at most {self.tolerance.mean:g}"),
        ]
        if self.left_out:
            rows.insert(2, ("left out", f"{self.left_out:,}", "longer than the other model takes"))
        if self.divergences is not None:
            equal = self.sentences - len(self.divergences)
            near = f"and {self.agreeing - equal} that differ at a near tie"
            rows.append(("greedy, equal", f"{equal:,}", f"{near}; together at least {self.tolerance.greedy:.0%}"))
        rows += [(check.name, f"{check.agreeing:,}", f"of {check.total:,}") for check in self.checks]
        for divergence in (self.divergences or ())[:DIVERGENCES_SHOWN]:
            kind = "near tie" if divergence.is_near_tie else "different"
            position = f"sentence {divergence.sentence}, token {divergence.token}"
            rows.append((kind, f"{divergence.gap:.2g}", f"between two logits: {position}"))
        return rows


def compare(model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]) -> Comparison:
    """Compare outputs on the run's translations of ``texts``, or on texts of a language model."""
    num_texts = len(texts)
    texts, examples = _short_enough(model, counterpart, texts)
    largest, total, count = 0.0, 0.0, 0
    for rows in itertools.batched(examples, ROWS_AT_ONCE):
        logits = model.logits(rows)
        ours = logits if counterpart.compares_logits else token_log_probabilities(logits, rows)
        for mine, theirs in zip(ours, counterpart.outputs(rows), strict=True):
            errors = differences(mine, theirs)
            largest = max(largest, float(np.max(errors, initial=0.0)))
            total, count = total + float(np.sum(errors)), count + errors.size
    lengths = [len(example.target) for example in examples]
    return Comparison(
        counterpart.name,
        counterpart.compares_logits,
        counterpart.tolerance,
        len(examples),
        sum(lengths),
        max(lengths),
        largest,
        total / max(count, 1),
        _divergences(model, counterpart, examples) if model.translates else None,
        tuple(counterpart.checks(texts, examples)),
        num_texts - len(examples),
    )


def differences(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return absolute differences of outputs, infinite if one is not finite.

    Logits of ids that both sides suppress are left out. Raises DataError if the shapes differ.
    """
    if mine.shape != theirs.shape:
        raise DataError(f"outputs have shape {theirs.shape}, but {mine.shape} here: give the same model and vocabulary")
    is_finite = np.isfinite(mine) & np.isfinite(theirs)
    apart = np.full(mine.shape, np.inf)
    np.subtract(mine, theirs, out=apart, where=is_finite)
    is_never = is_finite & (mine <= NEVER) & (theirs <= NEVER)
    return np.abs(apart)[~is_never]


def token_log_probabilities(logits: Sequence[np.ndarray], examples: Sequence[Example]) -> list[np.ndarray]:
    """Return log-probabilities [T] of targets among all ids but PAD and BOS, in float64."""
    results = []
    for row, example in zip(logits, examples, strict=True):
        choosable = row.astype(np.float64)
        choosable[:, [PAD_ID, BOS_ID]] = -np.inf
        shifted = choosable - choosable.max(axis=-1, keepdims=True)
        scores = shifted[np.arange(len(example.target)), example.target]
        results.append(scores - np.log(np.sum(np.exp(shifted), axis=-1)))
    return results


def _short_enough(
    model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]
) -> tuple[list[str], list[Example]]:
    """Return texts and examples that the counterpart takes. Raise DataError without any."""
    if not texts:
        raise DataError(f"{counterpart.name}: no text to compare on; give one with --source")
    longest = counterpart.longest or np.inf
    texts = model.short_enough(texts, counterpart.longest)
    examples = zip(texts, model.examples(texts), strict=True)
    fitting = [(text, example) for text, example in examples if len(example.target) <= longest]
    if not fitting:
        raise DataError(f"{counterpart.name}: no text, or translation, of at most {longest} tokens")
    return [text for text, _ in fitting], [example for _, example in fitting]


def _divergences(model: OpenedModel, counterpart: Counterpart, examples: Sequence[Example]) -> tuple[Divergence, ...]:
    extra = model.config.decoding.max_extra_tokens + len(model.tokenizers.target.encode(""))
    longest = counterpart.longest or np.inf
    limits = [int(min(len(example.source) - 1 + extra, longest)) for example in examples]
    translations = counterpart.greedy([example.source for example in examples], max(limits))
    divergences = []
    for number, (example, theirs, limit) in enumerate(zip(examples, translations, limits, strict=True), start=1):
        # The last token of a translation at the limit is always EOS.
        mine, theirs = ([*ids, EOS_ID][: limit - 1] for ids in (example.target[:-1], theirs))
        if mine != theirs:
            index = next(n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            logits = model.logits([example])[0][index]
            divergences.append(Divergence(number, index + 1, float(logits[mine[index]] - logits[theirs[index]])))
    return tuple(divergences)
