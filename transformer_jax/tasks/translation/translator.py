"""Translation of text: tokenizer, model and beam search."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import PAD_ID, UNK_ID, AnyArray, Array, Int, PyTree
from transformer_jax.config import ConfigError, DecodingConfig
from transformer_jax.config.data import padded_width
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import Hypotheses
from transformer_jax.decoding.segmented_search import FEWEST_ROWS, SearchBatch, SegmentedSearch
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.runtime.hardware import batch_tokens_on, device_of, few_shapes_on
from transformer_jax.sequence_types import DecodeCache, Tokens
from transformer_jax.tasks.translation.searches import search_for
from transformer_jax.tasks.translation.sources import encode_sources
from transformer_jax.training.sharding import put_rows, row_groups, whole_over_fsdp

# More beams in all are no faster on a CPU, and wait longer for the last of them.
MOST_BEAMS = {"cpu": 5 * FEWEST_ROWS}
# Of so many sentences at most, programs for more than the fewest rows take longer than they save.
FEW_SENTENCES = 512
# Padding more than these to two widths costs more than programs for further widths.
SENTENCES_OF_A_VALIDATION = 10_000
# Shorter sources have a state as for so many tokens, since a program for each of their widths takes longer than it saves.
FEWEST_SOURCE_COLUMNS = 64


class Translation(NamedTuple):
    """One hypothesis: its text, its length-normalized log-probability, and its tokens, EOS included."""

    text: str
    score: float
    token_ids: list[int]


class Translator:
    """Translates sentences with one model; compiled programs are kept, a few shapes in all."""

    def __init__(
        self,
        model: Module,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        mesh: Mesh,
        longest: int | None = None,
        compute_dtype: str = "float32",
    ) -> None:
        """``longest``: the most positions of a sequence that the model has; None: any. ``compute_dtype``: that of the model."""
        self._tokenizers = tokenizers
        self._config = config
        self._mesh = mesh
        self._model = model
        self._longest = longest
        self._compute_dtype = compute_dtype
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
    ) -> list[list[Translation]]:
        """The ``num_results`` best translations of each sentence, best first, in the order of ``sentences``.

        A sentence that is empty, or nothing but white space, translates to the empty text without asking the model. Every
        other translation begins with the tokens of ``prefix``, whose last word it may lengthen, after those that the tokenizer
        puts before every text.

        Raises ConfigError as ``prefix_ids`` does, and SentenceTooLong when one is longer than ``decoding.max_source_tokens``;
        ``name`` and ``first`` say how it is called.
        """
        results = [[NOTHING] for _ in sentences]
        limit, tokenizer = self._config.max_source_tokens, self._tokenizers.source
        asked, sources = encode_sources(tokenizer, sentences, limit, name, first)
        found = self.translate_ids(params, sources, num_results=num_results, prefix=prefix)
        for place, translations in zip(asked, found, strict=True):
            results[place] = translations
        return results

    def translate_ids(
        self, params: PyTree, sources: Sequence[list[int]], *, num_results: int = 1, prefix: str = ""
    ) -> list[list[Translation]]:
        """As ``translate``, of token ids that end with EOS, none of them EOS alone."""
        results: list[list[Translation]] = [[] for _ in sources]
        params = whole_over_fsdp(params, self._mesh, self._compute_dtype)
        search, prefix_ids = self._search_for(num_results), self.prefix_ids(prefix)
        for found, hypotheses in search.search(params, self.batches(sources, prefix_ids)):
            for place, index in enumerate(found):
                results[index] = self._texts(hypotheses, place)
        return results

    def batches(self, sources: Sequence[list[int]], prefix_ids: list[int]) -> Iterator[SearchBatch]:
        """All sources, named by their places; those of one kind follow each other; their inputs are ids [B, S]."""
        extra, groups = self._config.max_extra_tokens + len(prefix_ids), row_groups(self._mesh)
        most_rows = MOST_BEAMS.get(device_of(self._mesh).platform)
        if most_rows is not None:
            most_rows = FEWEST_ROWS if len(sources) <= FEW_SENTENCES else max(most_rows // self._config.beam_width, 1)
        for indices, ids in source_batches(
            sources,
            batch_tokens=batch_tokens_on(self._mesh, self._config.batch_tokens),
            row_multiple=groups,
            most_rows=most_rows,
            few_shapes=few_shapes_on(self._mesh) and len(sources) <= SENTENCES_OF_A_VALIDATION,
        ):
            rows, width = ids.shape
            width = max(padded_width(FEWEST_SOURCE_COLUMNS, self._longest), width)
            most = min(width + extra, self._longest or width + extra)
            names = np.full(rows, -1)
            names[: len(indices)] = indices
            forced = np.tile(np.array(prefix_ids, np.int32), (rows, 1)) if prefix_ids else None
            limits = np.minimum(limits_of(ids, extra), np.int32(most))
            like = jax.ShapeDtypeStruct((rows, width), np.int32)
            yield SearchBatch(names, put_rows(ids, self._mesh), limits, most, forced, like)

    def prefix_ids(self, prefix: str) -> list[int]:
        """The tokens of text that translations shall begin with, without the white space at its end.

        Raises ConfigError when these tokens are of other text, as those of a word that the vocabulary lacks.
        """
        target = self._tokenizers.target
        ids = target.encode(prefix.rstrip())
        written = target.decode(ids)
        if prefix.strip() and (UNK_ID in ids or written.split() != prefix.split()):
            raise ConfigError(f"prefix: {prefix!r} is {written!r} in the vocabulary of this run; give text that it has")
        return ids

    def _search_for(self, num_results: int) -> SegmentedSearch:
        """Made once for each number of results: it keeps compiled programs."""
        if num_results not in self._searches:
            init = partial(init_cache, self._model, self._config.beam_width)
            self._searches[num_results] = search_for(self._model, self._config, self._mesh, num_results, init)
        return self._searches[num_results]

    def _texts(self, found: Hypotheses, row: int) -> list[Translation]:
        translations = []
        for ids, score, length in zip(found.ids[row], found.scores[row], found.lengths[row], strict=True):
            if length:
                translations.append(translation_of(ids[:length], float(score), self._tokenizers))
        # Search finds nothing where no probability is a number; the line must still be there.
        return translations or [NOTHING]


NOTHING = Translation("", 0.0, [])


def translation_of(ids: AnyArray, score: float, tokenizers: TokenizerPair) -> Translation:
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
