"""Comparison of a run with the same model in another toolkit: outputs for given tokens, and greedy translations."""

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
# Logits at most this low belong to ids that one side lacks.
NEVER = -1e8
DIVERGENCES_SHOWN = 10


class Tolerance(NamedTuple):
    """Upper bounds of the largest and the mean difference of outputs, and the minimum share of equal greedy translations."""

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

    ``compares_logits``: whether outputs are logits, else log-probabilities. ``longest``: maximum
    number of tokens of a source or target, EOS included, or None.
    """

    name = ""
    compares_logits = True
    longest: int | None = None
    tolerance = Tolerance(0.0, 0.0)

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """For each target the logits [T, V], or the log-probability of each token [T]."""
        raise NotImplementedError

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """Return the greedy translation, without EOS, of each source, at most ``longest`` tokens;
        only for translation models.
        """
        raise NotImplementedError

    def checks(self, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Further comparisons with the run on ``texts`` and their tokens."""
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
    """The largest and the mean difference of outputs over ``tokens`` of ``sentences``, and the greedy translations that differ.

    ``divergences``: None for a language model. ``left_out``: number of texts too long for the counterpart.
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
        """Whether outputs and greedy translations agree within the tolerance, and all further checks pass."""
        is_near = self.largest <= self.tolerance.largest and self.mean <= self.tolerance.mean
        agrees = self.divergences is None or self.agreeing >= self.tolerance.greedy * self.sentences
        return is_near and agrees and all(each.agreeing == each.total for each in self.checks)

    @property
    def agreeing(self) -> int:
        """Number of greedy translations that are equal or differ at a near tie."""
        return self.sentences - sum(not each.is_near_tie for each in self.divergences or ())

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of each line of the table."""
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
        rows += [(each.name, f"{each.agreeing:,}", f"of {each.total:,}") for each in self.checks]
        for each in (self.divergences or ())[:DIVERGENCES_SHOWN]:
            kind = "near tie" if each.is_near_tie else "different"
            rows.append((kind, f"{each.gap:.2g}", f"between two logits: sentence {each.sentence}, token {each.token}"))
        return rows


def compare(model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]) -> Comparison:
    """Compare outputs on the greedy translations of ``texts`` by ``model``; for a language model on the texts themselves."""
    given = len(texts)
    texts, examples = _short_enough(model, counterpart, texts)
    largest, total, count = 0.0, 0.0, 0
    for rows in itertools.batched(examples, ROWS_AT_ONCE):
        logits = model.logits(rows)
        ours = logits if counterpart.compares_logits else token_log_probabilities(logits, rows)
        for mine, theirs in zip(ours, counterpart.outputs(rows), strict=True):
            found = differences(mine, theirs)
            largest = max(largest, float(np.max(found, initial=0.0)))
            total, count = total + float(np.sum(found)), count + found.size
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
        given - len(examples),
    )


def differences(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Absolute differences of outputs, infinite if one is not finite, without logits of ids that both sides suppress.

    Raises DataError if the shapes differ.
    """
    if mine.shape != theirs.shape:
        raise DataError(f"outputs have shape {theirs.shape}, but {mine.shape} here; give the same model and vocabulary")
    is_finite = np.isfinite(mine) & np.isfinite(theirs)
    apart = np.full(mine.shape, np.inf)
    np.subtract(mine, theirs, out=apart, where=is_finite)
    is_never = is_finite & (mine <= NEVER) & (theirs <= NEVER)
    return np.abs(apart)[~is_never]


def token_log_probabilities(logits: Sequence[np.ndarray], examples: Sequence[Example]) -> list[np.ndarray]:
    """Log-probabilities of target tokens [T] among all ids except PAD and BOS, from logits [T, V], in float64."""
    results = []
    for each, example in zip(logits, examples, strict=True):
        choosable = each.astype(np.float64)
        choosable[:, [PAD_ID, BOS_ID]] = -np.inf
        shifted = choosable - choosable.max(axis=-1, keepdims=True)
        chosen = shifted[np.arange(len(example.target)), example.target]
        results.append(chosen - np.log(np.sum(np.exp(shifted), axis=-1)))
    return results


def _short_enough(
    model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]
) -> tuple[list[str], list[Example]]:
    """Return the texts and examples within the limits of the counterpart; raises DataError if there are none."""
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
    found = counterpart.greedy([example.source for example in examples], max(limits))
    divergences = []
    for number, (example, theirs, limit) in enumerate(zip(examples, found, limits, strict=True), start=1):
        # The last token of a translation at the limit is always EOS.
        mine, theirs = ([*ids, EOS_ID][: limit - 1] for ids in (example.target[:-1], theirs))
        if mine != theirs:
            index = next(n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            logits = model.logits([example])[0][index]
            divergences.append(Divergence(number, index + 1, float(logits[mine[index]] - logits[theirs[index]])))
    return tuple(divergences)
