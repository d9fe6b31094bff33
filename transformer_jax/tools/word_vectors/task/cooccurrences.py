"""How often words are near each other: counted in one pass over a text with bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from transformer_jax.array_types import EOS_ID
from transformer_jax.data.cached_stores import BuildProgress
from transformer_jax.data.token_store import DocumentStore

PAIR = np.dtype([("key", np.int64), ("count", np.float32)])
"""A pair of words, word * V + context, and the sum of 1 / distance."""

PAIRS_FILE = "pairs"
IDS_AT_ONCE = 1 << 18
MERGED_AT_ONCE = 1 << 18


def count_cooccurrences(
    store: DocumentStore, counts: np.ndarray, window: int, memory_pairs: int, directory: Path
) -> np.ndarray:
    """Pairs of words at most ``window`` apart in a document, in both orders, sorted by word and context; a memory map.

    Each weighs 1 / distance (section 4.2 of Pennington et al. 2014); words without a count are left out before distances are
    taken. At most about ``memory_pairs`` pairs are in memory: then they are sorted, summed and written to ``directory``, and
    all such runs are merged at the end. Weights and counts are float32; they are added in float64.
    """
    runs: list[Path] = []
    held: list[np.ndarray] = []
    size = 0
    for pairs in _pairs_of_text(store, counts, window):
        held.append(pairs)
        size += len(pairs)
        if size >= memory_pairs:
            held = [_summed(np.concatenate(held))]
            size = len(held[0])
            # Where summing frees little, the run is full.
            if size >= memory_pairs // 2:
                runs.append(_written(held.pop(), directory / f"run-{len(runs)}"))
                size = 0
    if held:
        runs.append(_written(_summed(np.concatenate(held)), directory / f"run-{len(runs)}"))
    merged = directory / PAIRS_FILE
    with open(merged, "wb") as file:
        for pairs in _merged([np.memmap(run, PAIR, "r") for run in runs if run.stat().st_size]):
            pairs.tofile(file)
    for run in runs:
        run.unlink()
    return np.memmap(merged, PAIR, "r") if merged.stat().st_size else np.zeros(0, PAIR)


def _pairs_of_text(store: DocumentStore, counts: np.ndarray, window: int) -> Iterator[np.ndarray]:
    """The pairs of pieces of the text, unsummed; a piece begins with the words that end the one before it."""
    is_word = counts > 0
    is_word[EOS_ID] = True
    vocabulary = len(counts)
    before = np.zeros(0, np.int64)
    for start in _starts_with_progress(store.num_tokens):
        ids = np.asarray(store.ids[start : start + IDS_AT_ONCE], np.int64)
        new = ids[is_word[ids]]
        text = np.concatenate([before, new])
        document = np.cumsum(text == EOS_ID)
        for distance in range(1, window + 1):
            first, second = text[:-distance], text[distance:]
            counted = (document[:-distance] == document[distance:]) & (first != EOS_ID)
            # Pairs that end in what was there before are counted already.
            counted[: max(len(before) - distance, 0)] = False
            left, right = first[counted], second[counted]
            pairs = np.empty(2 * len(left), PAIR)
            pairs["key"] = np.concatenate([left * vocabulary + right, right * vocabulary + left])
            pairs["count"] = 1 / distance
            yield pairs
        before = text[-window:]


def _starts_with_progress(num_tokens: int) -> Iterator[int]:
    progress = BuildProgress("pairs of words", num_tokens, unit="tokens", doing="counting")
    for start in range(0, num_tokens, IDS_AT_ONCE):
        yield start
        progress.advance(min(IDS_AT_ONCE, num_tokens - start))


def _summed(pairs: np.ndarray) -> np.ndarray:
    """Sorted by key, each key once."""
    order = np.argsort(pairs["key"], kind="stable")
    keys = pairs["key"][order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    summed = np.empty(len(starts), PAIR)
    summed["key"] = keys[starts]
    summed["count"] = np.add.reduceat(pairs["count"][order].astype(np.float64), starts)
    return summed


def _written(pairs: np.ndarray, path: Path) -> Path:
    pairs.tofile(path)
    return path


def _merged(runs: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The runs as one sorted stream, a stretch of keys at a time that all runs have whole in memory."""
    places = [0] * len(runs)
    while live := [run for run in range(len(runs)) if places[run] < len(runs[run])]:
        share = max(MERGED_AT_ONCE // len(live), 1)
        ends = [int(runs[run]["key"][min(places[run] + share, len(runs[run])) - 1]) for run in live]
        limit = min(ends)
        parts = []
        for run in live:
            stretch = runs[run][places[run] : places[run] + share]
            taken = int(np.searchsorted(stretch["key"], limit, side="right"))
            parts.append(np.asarray(stretch[:taken]))
            places[run] += taken
        yield _summed(np.concatenate(parts))
