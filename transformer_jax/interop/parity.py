"""Comparison of a run with the same model elsewhere: outputs for given tokens, and greedy translations."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.interop.opened_model import ROWS_AT_ONCE, Example, OpenedModel

# Two tokens whose logits differ by less may change places when sums are rounded otherwise.
NEAR_TIE = 1e-3
# A logit that low belongs to an id that one side does not have.
NEVER = -1e8


@runtime_checkable
class Counterpart(Protocol):
    """The model elsewhere. Token ids are those of the run; ``tolerance`` bounds the difference of an output.

    ``longest_source``: the most tokens of a source, EOS included; None where there is no limit.
    """

    name: str
    compares_logits: bool
    longest_source: int | None
    tolerance: float

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """Ids of each text with EOS by a tokenizer of their own; None where it has none."""

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """For every target its logits [T, V] if ``compares_logits``, else the log-probability of each token [T]."""

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""


class Divergence(NamedTuple):
    """A greedy translation that differs: the sentence, from 1, the first place, from 1, and how far apart the two choices are.

    ``gap`` is the difference of this package's logits of both choices; below ``NEAR_TIE`` either may come first.
    """

    sentence: int
    place: int
    gap: float

    @property
    def is_near_tie(self) -> bool:
        """Whether rounding alone can explain it."""
        return self.gap < NEAR_TIE


class Comparison(NamedTuple):
    """Counts of sentences and target tokens, the largest and the mean difference of an output, and greedy divergences."""

    counterpart: str
    compares_logits: bool
    tolerance: float
    sentences: int
    tokens: int
    longest: int
    largest: float
    mean: float
    divergences: tuple[Divergence, ...]
    tokenized_alike: int | None

    @property
    def holds(self) -> bool:
        """Whether outputs agree within the tolerance; then greedy translations may differ at near ties alone."""
        is_exact = self.tolerance > NEAR_TIE or all(each.is_near_tie for each in self.divergences)
        return self.largest <= self.tolerance and is_exact

    def rows(self) -> list[tuple[str, str, str]]:
        """The comparison as lines of a table."""
        compared = "logit" if self.compares_logits else "log-probability of a token"
        ties = [each for each in self.divergences if each.is_near_tie]
        rows = [
            ("compared with", self.counterpart, "this package in float32"),
            ("sentences", f"{self.sentences:,}", f"{self.tokens:,} target tokens, the longest target {self.longest}"),
            ("largest difference", f"{self.largest:.2g}", f"of a {compared}; at most {self.tolerance:g}"),
            ("mean difference", f"{self.mean:.2g}", ""),
            (
                "greedy, equal",
                f"{self.sentences - len(self.divergences):,}",
                f"and {len(ties)} that differ at a near tie",
            ),
        ]
        if self.tokenized_alike is not None:
            rows.append(("tokenized alike", f"{self.tokenized_alike:,}", ""))
        for each in self.divergences[:10]:
            kind = "near tie" if each.is_near_tie else "different"
            rows.append((kind, f"{each.gap:.2g}", f"between two logits: sentence {each.sentence}, token {each.place}"))
        return rows


def compare(model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]) -> Comparison:
    """Compares both on the greedy translations, by ``model``, of ``texts``; of a language model, on the texts themselves."""
    texts = _short_enough(model, counterpart, texts)
    examples = model.examples(texts)
    largest, total, count = 0.0, 0.0, 0
    for start in range(0, len(examples), ROWS_AT_ONCE):
        rows = examples[start : start + ROWS_AT_ONCE]
        logits = model.logits(rows)
        ours = logits if counterpart.compares_logits else token_log_probabilities(logits, rows)
        for mine, theirs in zip(ours, counterpart.outputs(rows), strict=True):
            differences = np.abs(mine - theirs)[np.minimum(mine, theirs) > NEVER]
            # A number that is none is as far off as can be.
            largest = max(largest, float(np.max(np.nan_to_num(differences, nan=np.inf), initial=0.0)))
            total, count = total + float(np.sum(differences)), count + differences.size
    divergences = _divergences(model, counterpart, examples) if model.translates else ()
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
        divergences,
        _tokenized_alike(counterpart, texts, examples) if model.translates else None,
    )


def _short_enough(model: OpenedModel, counterpart: Counterpart, texts: Sequence[str]) -> Sequence[str]:
    """The texts that the counterpart can read; raises DataError when there is none."""
    longest = counterpart.longest_source
    if longest is None:
        return texts
    encoded = model.tokenizers.source.encode_batch(texts)
    fitting = [text for text, ids in zip(texts, encoded, strict=True) if len(ids) < longest]
    if not fitting:
        raise DataError(f"{counterpart.name}: no text has less than {longest} tokens; export with more")
    return fitting


def token_log_probabilities(logits: Sequence[np.ndarray], examples: Sequence[Example]) -> list[np.ndarray]:
    """The log-probability of every target token [T] from logits [T, V], summed in float64."""
    results = []
    for each, example in zip(logits, examples, strict=True):
        shifted = each.astype(np.float64) - each.max(axis=-1, keepdims=True)
        chosen = shifted[np.arange(len(example.target)), example.target]
        results.append(chosen - np.log(np.sum(np.exp(shifted), axis=-1)))
    return results


def _tokenized_alike(counterpart: Counterpart, texts: Sequence[str], examples: Sequence[Example]) -> int | None:
    encoded = counterpart.encode(texts)
    if encoded is None:
        return None
    return sum(theirs == example.source for theirs, example in zip(encoded, examples, strict=True))


def _divergences(model: OpenedModel, counterpart: Counterpart, examples: Sequence[Example]) -> tuple[Divergence, ...]:
    extra = model.config.decoding.max_extra_tokens
    limits = [len(example.source) - 1 + extra for example in examples]
    found = counterpart.greedy([example.source for example in examples], max(limits))
    differing = []
    for index, (example, theirs) in enumerate(zip(examples, found, strict=True)):
        # In its last place a translation has no choice but EOS.
        room = limits[index] - 1
        mine = [*example.target[:-1], EOS_ID][:room]
        theirs = [*theirs, EOS_ID][:room]
        if mine != theirs:
            place = next(n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
            differing.append((index, place, theirs[place]))
    divergences = []
    for index, place, other in differing:
        logits = model.logits([examples[index]])[0][place]
        divergences.append(
            Divergence(index + 1, place + 1, float(logits[examples[index].target[place]] - logits[other]))
        )
    return tuple(divergences)
