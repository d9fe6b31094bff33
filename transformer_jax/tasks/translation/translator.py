"""Translation of text: tokenizer, model and beam search."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, Array, Int, PyTree
from transformer_jax.config import DataError, DecodingConfig
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import Hypotheses, beam_search
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Tokens
from transformer_jax.training.sharding import everywhere, put_rows, row_groups


class Translation(NamedTuple):
    """One hypothesis: its text, its length-normalized log-probability, and its tokens, EOS included."""

    text: str
    score: float
    token_ids: list[int]


class Translator:
    """Translates sentences with one model; compiled programs are kept, a few shapes in all."""

    def __init__(self, model: Module, tokenizers: TokenizerPair, config: DecodingConfig, mesh: Mesh) -> None:
        self._tokenizers = tokenizers
        self._config = config
        self._mesh = mesh
        self._search = jax.jit(
            partial(search, model, config), static_argnames="num_results", out_shardings=everywhere(mesh)
        )

    def translate(
        self,
        params: PyTree,
        sentences: Sequence[str],
        *,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[list[Translation]]:
        """The ``num_results`` best translations of each sentence, best first, in the order of ``sentences``.

        A sentence that is empty, or nothing but white space, translates to the empty text without asking the model.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``; ``name`` and ``first`` say how it is
        called.
        """
        results = [[NOTHING] for _ in sentences]
        asked = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        encoded = self._tokenizers.source.encode_batch([sentences[index] for index in asked])
        sources = [[*ids, EOS_ID] for ids in encoded]
        lengths = np.zeros(len(sentences), np.int64)
        lengths[asked] = [len(ids) for ids in sources]
        require_translatable(lengths, self._config.max_source_tokens, name, first)
        done = len(sentences) - len(asked)
        batch_tokens = self._config.batch_tokens
        for batch in source_batches(sources, batch_tokens=batch_tokens, row_multiple=row_groups(self._mesh)):
            ids = put_rows(batch.ids, self._mesh)
            found = jax.device_get(self._search(params, ids, num_results=num_results))
            for row, index in enumerate(batch.indices):
                results[asked[index]] = self._texts(found, row)
            done += len(batch.indices)
            on_progress(done)
        return results

    def _texts(self, found: Hypotheses, row: int) -> list[Translation]:
        translations = []
        for ids, score, length in zip(found.ids[row], found.scores[row], found.lengths[row], strict=True):
            if length:
                tokens = np.asarray(ids[:length]).tolist()
                # A tokenizer that falls back to bytes can spell a line break; a translation is one line.
                text = as_one_line(self._tokenizers.target.decode(tokens))
                translations.append(Translation(text, float(score), tokens))
        # Search finds nothing where no probability is a number; the line must still be there.
        return translations or [NOTHING]


NOTHING = Translation("", 0.0, [])


class SentenceTooLong(DataError):
    """A sentence has more tokens than allowed; ``index`` is its place in the list, from 0."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def require_translatable(lengths: np.ndarray, limit: int, name: str, first: int = 1) -> None:
    """Raises SentenceTooLong, naming the first, when a sentence has more than ``limit`` tokens; lengths count EOS."""
    too_long = np.flatnonzero(lengths > limit + 1)
    if len(too_long):
        index = int(too_long[0])
        raise SentenceTooLong(
            f"{name} {index + first}: {lengths[index] - 1:,} tokens are more than decoding.max_source_tokens={limit}; "
            "split it, or raise that where memory suffices for its square",
            index,
        )


def search(
    model: Module, config: DecodingConfig, params: PyTree, source_ids: Int[Array, "B S"], *, num_results: int
) -> Hypotheses:
    """Beam search with ``model`` for rows of source ids that end with EOS; rows of padding cost no step.

    At most source tokens + ``max_extra_tokens`` tokens, EOS counted on neither side (section 6.1).
    """
    source = Tokens.from_ids(source_ids)
    source_lengths = jnp.sum(source.segments, axis=1)
    max_lengths = jnp.where(source_lengths > 0, source_lengths + config.max_extra_tokens, 0)
    max_length = source_ids.shape[1] + config.max_extra_tokens
    memory = call(model, params, "encode", source, train=False)
    cache = call(model, params, "init_cache", memory, beam_width=config.beam_width, max_length=max_length)
    return beam_search(
        partial(call, model, params, "decode_step"),
        cache,
        max_lengths=max_lengths,
        max_length=max_length,
        beam_width=config.beam_width,
        num_results=num_results,
        length_penalty=config.length_penalty,
    )
