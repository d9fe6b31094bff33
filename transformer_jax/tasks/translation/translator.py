"""Translation of text: tokenizer, model and beam search."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import PAD_ID, Array, Int, PyTree
from transformer_jax.config import DecodingConfig
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import BeamState, Hypotheses, Rules, search_next, start_search
from transformer_jax.decoding.segmented_search import SegmentedSearch, rooms_of
from transformer_jax.decoding.source_batches import most_rows, source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import DecodeCache, Tokens
from transformer_jax.tasks.decoding_program import DecodingProgram
from transformer_jax.tasks.translation.sources import encode_sources
from transformer_jax.training.sharding import everywhere, put_rows, row_groups, whole_over_fsdp


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
        self._model = model
        self._searches: dict[int, SegmentedSearch] = {}

    def translate(
        self,
        params: PyTree,
        sentences: Sequence[str],
        *,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
        prefix: str = "",
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[list[Translation]]:
        """The ``num_results`` best translations of each sentence, best first, in the order of ``sentences``.

        A sentence that is empty, or nothing but white space, translates to the empty text without asking the model. Every
        other translation begins with the tokens of ``prefix``, and with those that the tokenizer puts before every text.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``; ``name`` and ``first`` say how it is
        called.
        """
        results = [[NOTHING] for _ in sentences]
        limit, tokenizer = self._config.max_source_tokens, self._tokenizers.source
        asked, sources = encode_sources(tokenizer, sentences, limit, name, first)
        blank = len(sentences) - len(asked)
        found = self.translate_ids(
            params, sources, num_results=num_results, prefix=prefix, on_progress=lambda done: on_progress(blank + done)
        )
        for place, translations in zip(asked, found, strict=True):
            results[place] = translations
        return results

    def translate_ids(
        self,
        params: PyTree,
        sources: Sequence[list[int]],
        *,
        num_results: int = 1,
        prefix: str = "",
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[list[Translation]]:
        """As ``translate``, of token ids that end with EOS, none of them EOS alone."""
        results: list[list[Translation]] = [[] for _ in sources]
        forced = self._tokenizers.target.encode(prefix)
        done = 0
        search, params = self._search_for(num_results), whole_over_fsdp(params, self._mesh)
        extra, batch_tokens = self._config.max_extra_tokens + len(forced), self._config.batch_tokens
        for batch in source_batches(sources, batch_tokens=batch_tokens, row_multiple=row_groups(self._mesh)):
            limits = limits_of(batch.ids, extra)
            inputs = put_rows(batch.ids, self._mesh)
            starts = np.tile(np.array(forced, np.int32), (len(limits), 1)) if forced else None
            for rows, found in search.search(params, inputs, limits, batch.ids.shape[1] + extra, starts):
                for place, row in enumerate(rows):
                    results[batch.indices[row]] = self._texts(found, place)
                done += len(rows)
                on_progress(done)
        return results

    def _search_for(self, num_results: int) -> SegmentedSearch:
        """Made once for each number of results: it keeps compiled programs."""
        if num_results not in self._searches:
            config = self._config
            rules = Rules(config.beam_width, num_results, config.length_penalty, stop=config.stop)
            self._searches[num_results] = SegmentedSearch(
                partial(init_cache, self._model, config.beam_width),
                lambda params: partial(call, self._model, params, "decode_step"),
                rules,
                row_multiple=row_groups(self._mesh),
                whole=everywhere(self._mesh),
            )
        return self._searches[num_results]

    def _texts(self, found: Hypotheses, row: int) -> list[Translation]:
        translations = []
        for ids, score, length in zip(found.ids[row], found.scores[row], found.lengths[row], strict=True):
            if length:
                translations.append(translation_of(ids[:length], float(score), self._tokenizers))
        # Search finds nothing where no probability is a number; the line must still be there.
        return translations or [NOTHING]


NOTHING = Translation("", 0.0, [])


def decoding_program(model: Module, config: DecodingConfig, width: int, row_multiple: int) -> DecodingProgram:
    """The search of ``Translator`` over a full batch of the longest sentences, of ``width`` tokens."""
    rows, most = most_rows(width, config.batch_tokens, row_multiple), width + config.max_extra_tokens
    rules = Rules(config.beam_width, 1, config.length_penalty, stop=config.stop)

    def start(params: PyTree, source_ids: Int[Array, "B S"], room: int) -> BeamState:
        limits = jnp.full((rows,), most, jnp.int32)
        return start_search(init_cache(model, config.beam_width, params, source_ids, room), limits, room, rules)

    def step(params: PyTree, state: BeamState) -> BeamState:
        return search_next(partial(call, model, params, "decode_step"), state, rules)

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    return DecodingProgram(rows, width, config.beam_width, inputs, start, step, rooms_of(most))


def translation_of(ids: np.ndarray, score: float, tokenizers: TokenizerPair) -> Translation:
    """Tokens and their text, which is one line: a tokenizer that falls back to bytes can spell a line break."""
    tokens = np.asarray(ids).tolist()
    return Translation(as_one_line(tokenizers.target.decode(tokens)), score, tokens)


def limits_of(source_ids: np.ndarray, max_extra_tokens: int) -> np.ndarray:
    """The most tokens of the translation of each row [B, S]: source tokens + ``max_extra_tokens``, EOS counted on neither side.

    (Section 6.1.) 0 for a row of padding, which costs no step.
    """
    lengths = np.sum(source_ids != PAD_ID, axis=1, dtype=np.int32)
    return np.where(lengths > 0, lengths + np.int32(max_extra_tokens), 0).astype(np.int32)


def init_cache(model: Module, beam_width: int, params: PyTree, source_ids: Int[Array, "B S"], room: int) -> DecodeCache:
    """The encoded source and empty beams with room for so many tokens; rows of source ids end with EOS."""
    memory = call(model, params, "encode", Tokens.from_ids(source_ids), train=False)
    cache: DecodeCache = call(model, params, "init_cache", memory, beam_width=beam_width, max_length=room)
    return cache
