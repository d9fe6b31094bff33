"""Lexical shortlists: decoding that chooses among few tokens of the vocabulary, its own for every sentence.

A candidate is named by its column; those of PAD, BOS and EOS are their ids, so that a search need not know of it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Float, Int
from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.widths import padded_width
from transformer_jax.decoding.beam_search import StepFunction
from transformer_jax.runtime.atomic_files import appearing_file
from transformer_jax.sequence_types import DecodeCache

FIRST_COLUMNS = PAD_ID, BOS_ID, EOS_ID

StepAmong = Callable[[Int[Array, "B W"], DecodeCache, Float[Array, "B E C"]], tuple[Float[Array, "B W C"], DecodeCache]]
"""A step whose logits are those of some tokens, given by their output columns."""


class Shortlist(NamedTuple):
    """Target tokens that may be chosen, by source token.

    ``best`` int32 [V, K]: those that may translate each source token, padded with PAD; ``frequent`` int32 [N]: those that any
    sentence may have; ``tokenizers``: digests of those of both sides.
    """

    best: np.ndarray
    frequent: np.ndarray
    tokenizers: tuple[str, str]

    def candidates(self, source_ids: Sequence[int], always: Sequence[int] = ()) -> np.ndarray:
        """What a translation of a source may consist of, int32 [C], by column; ``always`` among them."""
        found = np.unique(np.concatenate([self.best[source_ids].ravel(), self.frequent, np.asarray(always, np.int32)]))
        return np.concatenate([np.array(FIRST_COLUMNS, np.int32), found[~np.isin(found, FIRST_COLUMNS)]])


def save_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Writes a .npz file."""
    with appearing_file(path) as file:
        np.savez_compressed(
            file, best=shortlist.best, frequent=shortlist.frequent, tokenizers=np.array(shortlist.tokenizers)
        )


def load_shortlist(path: str, tokenizers: tuple[str, str], num_sources: int, num_targets: int) -> Shortlist:
    """A shortlist for tokenizers with these digests and vocabularies of these sizes.

    Raises DataError when there is no such file or it is something else, ConfigError when it is for other tokenizers.
    """
    try:
        with Path(path).expanduser().open("rb") as file, np.load(file) as stored:
            best, frequent, digests = (stored[name] for name in Shortlist._fields)
    # A damaged file can raise anything, and its header may claim any size.
    except Exception as error:
        reason = getattr(error, "strerror", None) or "not a file that transformer-jax shortlist wrote"
        raise DataError(f"decoding.shortlist: {path}: {reason}") from None
    if tuple(map(str, digests.ravel())) != tokenizers:
        raise ConfigError(
            f"decoding.shortlist: {path} was made for other tokenizers than those of this run; the command shortlist makes one"
        )
    is_sound = best.ndim == 2 and len(best) == num_sources and frequent.ndim == 1
    for ids in (best, frequent):
        is_sound = is_sound and ids.dtype == np.int32 and bool(((ids >= 0) & (ids < num_targets)).all())
    if not is_sound:
        raise DataError(f"decoding.shortlist: {path}: damaged: its arrays are not tokens of the vocabularies")
    return Shortlist(best, frequent, tokenizers)


def columns_for(candidates: Sequence[np.ndarray]) -> int:
    """The number of columns that hold the candidates of every sentence, one of few."""
    return padded_width(max(map(len, candidates)))


def as_rows(candidates: Sequence[np.ndarray], num_rows: int, columns: int) -> np.ndarray:
    """Candidates of each row, int32 [num_rows, columns], padded with PAD; rows without any have EOS alone."""
    rows = np.full((num_rows, columns), PAD_ID, np.int32)
    rows[:, : len(FIRST_COLUMNS)] = FIRST_COLUMNS
    for row, own in enumerate(candidates):
        rows[row, : len(own)] = own
    return rows


def cache_among(cache: DecodeCache, candidates: Int[Array, "B C"], output: Float[Array, "B E C"]) -> DecodeCache:
    """The cache for ``step_among``: the candidates of each sentence and their output columns."""
    return cache._replace(per_sentence=(cache.per_sentence, candidates, output))


def step_among(step: StepAmong) -> StepFunction:
    """A step over columns instead of ids; columns without a candidate, and those of PAD and BOS, are impossible.

    So a softmax of its logits is over the candidates of a sentence alone, and does not depend on how many columns there are.
    """

    def among(token_columns: Int[Array, "B W"], cache: DecodeCache) -> tuple[Float[Array, "B W C"], DecodeCache]:
        inner, candidates, output = cache.per_sentence
        token_ids = jnp.take_along_axis(candidates, token_columns, axis=1)
        logits, after = step(token_ids, cache._replace(per_sentence=inner), output)
        is_possible = (candidates != PAD_ID) & (candidates != BOS_ID)
        return jnp.where(is_possible[:, None], logits.astype(jnp.float32), -jnp.inf), after

    return among
