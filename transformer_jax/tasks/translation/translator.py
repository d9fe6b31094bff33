"""Translation of text: tokenizer, model and beam search."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, PAD_ID, Array, Int, PyTree
from transformer_jax.config import DataError, DecodingConfig
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import Hypotheses, Rules, length_penalty_divisor
from transformer_jax.decoding.sampling import Samples, SamplingRule, sample
from transformer_jax.decoding.segmented_search import SegmentedSearch
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import DecodeCache, Tokens
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
        other translation begins with the tokens of ``prefix``.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens``; ``name`` and ``first`` say how it is
        called.
        """
        results = [[NOTHING] for _ in sentences]
        asked, sources = self._encoded(sentences, name, first)
        forced = self._tokenizers.target.encode(prefix) if prefix else []
        done = len(sentences) - len(asked)
        search, params = self._search_for(num_results), whole_over_fsdp(params, self._mesh)
        extra, batch_tokens = self._config.max_extra_tokens + len(forced), self._config.batch_tokens
        for batch in source_batches(sources, batch_tokens=batch_tokens, row_multiple=row_groups(self._mesh)):
            limits = limits_of(batch.ids, extra)
            inputs = put_rows(batch.ids, self._mesh)
            starts = np.tile(np.array(forced, np.int32), (len(limits), 1)) if forced else None
            for rows, found in search.search(params, inputs, limits, batch.ids.shape[1] + extra, starts):
                for place, row in enumerate(rows):
                    results[asked[batch.indices[row]]] = self._texts(found, place)
                done += len(rows)
                on_progress(done)
        return results

    def sample(
        self,
        params: PyTree,
        sentences: Sequence[str],
        rule: SamplingRule,
        *,
        seed: int = 0,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, drawn from the model, in the order of ``sentences``.

        What is drawn for a sentence depends on ``seed``, its number (from ``first`` on) and its text, and on nothing else. One
        that reaches its most tokens ends there. Raises SentenceTooLong as ``translate`` does.
        """
        results: list[list[Translation]] = [[] if each.strip() else [NOTHING] for each in sentences]
        asked, sources = self._encoded(sentences, name, first)
        copies = [
            (index, ids, number) for index, ids in zip(asked, sources, strict=True) for number in range(num_results)
        ]
        extra, params = self._config.max_extra_tokens, whole_over_fsdp(params, self._mesh)
        draw = jax.jit(partial(drawn, self._model, rule, extra), out_shardings=everywhere(self._mesh))
        batches = source_batches(
            [ids for _, ids, _ in copies], batch_tokens=self._config.batch_tokens, row_multiple=row_groups(self._mesh)
        )
        found: dict[tuple[int, int], Translation] = {}
        for batch in batches:
            rows = [copies[index] for index in batch.indices]
            row_ids = np.zeros(len(batch.ids), np.int32)
            row_ids[: len(rows)] = [(first - 1 + index) * num_results + number for index, _, number in rows]
            samples = jax.device_get(draw(params, *put_rows((batch.ids, row_ids), self._mesh), jax.random.key(seed)))
            for (index, _, number), ids, length, log_prob in zip(rows, *samples, strict=False):
                score = log_prob / length_penalty_divisor(length, self._config.length_penalty)
                found[index, number] = self._translation(ids[:length], float(score))
        for index, _, number in copies:
            results[index].append(found[index, number])
        return results

    def _encoded(self, sentences: Sequence[str], name: str, first: int) -> tuple[list[int], list[list[int]]]:
        """The places of the sentences that are not empty, and their tokens with EOS; raises SentenceTooLong."""
        asked = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        encoded = self._tokenizers.source.encode_batch([sentences[index] for index in asked])
        sources = [[*ids, EOS_ID] for ids in encoded]
        lengths = np.zeros(len(sentences), np.int64)
        lengths[asked] = [len(ids) for ids in sources]
        require_translatable(lengths, self._config.max_source_tokens, name, first)
        return asked, sources

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
                translations.append(self._translation(ids[:length], float(score)))
        # Search finds nothing where no probability is a number; the line must still be there.
        return translations or [NOTHING]

    def _translation(self, ids: np.ndarray, score: float) -> Translation:
        tokens = np.asarray(ids).tolist()
        # A tokenizer that falls back to bytes can spell a line break; a translation is one line.
        return Translation(as_one_line(self._tokenizers.target.decode(tokens)), score, tokens)


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


def drawn(
    model: Module,
    rule: SamplingRule,
    extra: int,
    params: PyTree,
    source_ids: Int[Array, "B S"],
    row_ids: Int[Array, "B"],
    key: Array,
) -> Samples:
    """A translation of each row drawn by ``rule``, at most ``extra`` tokens longer than its source."""
    lengths = jnp.sum(source_ids != PAD_ID, axis=1, dtype=jnp.int32)
    limits, most = jnp.where(lengths > 0, lengths + extra, 0), source_ids.shape[1] + extra
    cache = init_cache(model, 1, params, source_ids, most)
    step = partial(call, model, params, "decode_step")
    return sample(step, cache, key=key, row_ids=row_ids, max_lengths=limits, max_length=most, rule=rule)
