"""Translation of text: by beam search, and by sampling."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, PAD_ID, UNK_ID, AnyArray, Array, Int, PyTree
from transformer_jax.config import ConfigError, DataError, DecodingConfig
from transformer_jax.config.data import padded_width
from transformer_jax.config.plugins import with_settings
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import (
    BeamState,
    DecodeStep,
    Hypotheses,
    Rules,
    plain_search,
    search_next,
    start_search,
)
from transformer_jax.decoding.constraints import Constraint, constrained
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.decoding.sampling import SamplingRule, cache_with_keys, row_keys, sampled_search, step_beside_keys
from transformer_jax.decoding.segmented_search import (
    MIN_ROWS,
    InitCache,
    MakeStep,
    SearchBatch,
    SearchDevices,
    SegmentedSearch,
    capacities_of,
)
from transformer_jax.decoding.source_batches import rows_of_full_batch, source_batches
from transformer_jax.layers.mesh_axes import constrain_rows
from transformer_jax.models.interface import Module, call
from transformer_jax.runtime.hardware import batch_tokens_on, device_of, few_shapes_on
from transformer_jax.sequence_types import DecodeCache, Tokens
from transformer_jax.training.sharding import put_rows, replicated, row_groups, shard_map_rows, unshard_fsdp

# Maximum number of beams in a batch: more are no faster on a CPU.
MAX_BEAMS = {"cpu": 5 * MIN_ROWS}
# Up to this number of sentences, compiling programs for more than MIN_ROWS rows takes longer than they save.
MIN_ROWS_UP_TO = 1024
# For more sentences than this, padding to two widths costs more than compiling programs for more widths.
SENTENCES_OF_A_VALIDATION = 10_000
# The state of shorter sources is padded to this width: compiling a program for each width takes longer than it saves.
MIN_SOURCE_COLUMNS = 64
# Searches at once: on a CPU the products of few rows use about one core; other devices would wait while the host reads results.
THREADS = 2
# Bytes for each device and search; 8 GiB on accelerators. Without a limit a model of base size would take 8 GB on a CPU, by
# calculation; captions, for which 2 GiB suffice, took a fifth more time with a third of their groups.
WAITING_BYTES = {"cpu": 2 << 30}


# Samples in a row of a batch; attention of each reads the cache slots of all.
MAX_SAMPLES = 8


class SentenceTooLong(DataError):
    """A sentence has more tokens than allowed; ``index`` is its index in the list."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Translation(NamedTuple):
    """One hypothesis: its text, its length-normalized log-probability, and its tokens, EOS included."""

    text: str
    score: float
    token_ids: list[int]


class Translator:
    """Translates sentences with one model; compiled programs are kept, for a few shapes."""

    def __init__(
        self,
        model: Module,
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        mesh: Mesh,
        longest: int | None = None,
        compute_dtype: str = "float32",
        constraint: Constraint | None = None,
        parts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """``longest``: maximum length of a sequence of the model; None: any. ``compute_dtype``: of the model.

        ``constraint``, whose inputs are source ids: the tokens that beam search may choose. ``parts``: the settings of parts.
        """
        self.tokenizers = tokenizers
        self.decoding = decoding
        self.mesh = mesh
        self.model = model
        self._longest = longest
        self.compute_dtype = compute_dtype
        # It keeps compiled programs.
        self._search_for = cache(lambda results: search_for(model, decoding, mesh, results, constraint, parts))

    def translate(self, params: PyTree, sentences: Sequence[str], **options: Any) -> list[list[Translation]]:
        """``translate_in_order`` as a list."""
        return list(self.translate_in_order(params, sentences, **options))

    def translate_in_order(
        self,
        params: PyTree,
        sentences: Sequence[str],
        *,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
        prefix: str = "",
    ) -> Iterator[list[Translation]]:
        """The ``num_results`` best translations of each sentence, best first, in the order of ``sentences``.

        A sentence is yielded as soon as it and all before it are done. An empty sentence, or white space, has the empty
        translation. Every other translation begins with the tokens of ``prefix``, whose last word it may continue.

        Raises, before the search, ConfigError as ``prefix_ids`` does, and SentenceTooLong when a sentence is longer than
        ``decoding.max_source_tokens`` or the model allows; and DataError at a sentence that has no translation with the
        prefix. The message has ``name`` and the number of the sentence, counted from ``first``.
        """
        nonempty, sources = self.encode_sources(sentences, name, first)
        done = {index: [NOTHING] for index, sentence in enumerate(sentences) if not sentence.strip()}
        found = self._search(params, sources, num_results, self.prefix_ids(prefix))

        def in_order() -> Iterator[list[Translation]]:
            for index in range(len(sentences)):
                while index not in done:
                    of_source, translations = next(found)
                    done[nonempty[of_source]] = translations
                if prefix.strip() and sentences[index].strip() and done[index] == [NOTHING]:
                    problem = f"no translation that begins with {prefix!r} has a probability above 0"
                    raise DataError(f"{name} {index + first}: {problem}; give another prefix or loosen the constraint")
                yield done.pop(index)

        return in_order()

    def encode_sources(self, sentences: Sequence[str], name: str, first: int) -> tuple[list[int], list[list[int]]]:
        """The indices of the sentences that are more than white space, and their tokens with EOS.

        Raises SentenceTooLong as ``require_translatable`` does.
        """
        nonempty = [index for index, sentence in enumerate(sentences) if sentence.strip()]
        encoded = self.tokenizers.source.encode_batch([sentences[index] for index in nonempty])
        sources = [[*ids, EOS_ID] for ids in encoded]
        lengths = np.zeros(len(sentences), np.int64)
        lengths[nonempty] = [len(ids) for ids in sources]
        require_translatable(lengths, self.decoding.max_source_tokens, name, first, self._longest)
        return nonempty, sources

    def translate_ids(self, params: PyTree, sources: Sequence[list[int]]) -> list[list[Translation]]:
        """The best translation of each source, whose token ids end with EOS, and are not EOS alone."""
        found = dict(self._search(params, sources, 1, self.prefix_ids("")))
        return [found[index] for index in range(len(sources))]

    def _search(
        self, params: PyTree, sources: Sequence[list[int]], num_results: int, prefix_ids: list[int]
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Yields the index of each source and its translations, when they are done."""
        params = unshard_fsdp(params, self.mesh, self.compute_dtype)
        batches = self.batches(sources, prefix_ids)
        for indices, hypotheses in self._search_for(num_results).search(params, batches):
            for row, index in enumerate(indices):
                yield int(index), self._texts(hypotheses, row)

    def batches(self, sources: Sequence[list[int]], prefix_ids: list[int]) -> Iterator[SearchBatch]:
        """Batches of all sources; inputs are ids [B, S]; batches of the same shape follow each other."""
        extra, groups = self.decoding.max_extra_tokens + len(prefix_ids), row_groups(self.mesh)
        max_rows = MAX_BEAMS.get(device_of(self.mesh).platform)
        if max_rows is not None:
            max_rows = MIN_ROWS if len(sources) <= MIN_ROWS_UP_TO else max(max_rows // self.decoding.beam_width, 1)
        for of_batch, ids in source_batches(
            sources,
            batch_tokens=batch_tokens_on(self.mesh, self.decoding.batch_tokens),
            row_multiple=groups,
            max_rows=max_rows,
            few_shapes=few_shapes_on(self.mesh) and len(sources) <= SENTENCES_OF_A_VALIDATION,
            longest=self._longest,
        ):
            rows, width = ids.shape
            width = max(padded_width(MIN_SOURCE_COLUMNS, self._longest), width)
            max_length = min(width + extra, self._longest or width + extra)
            indices = np.full(rows, -1)
            indices[: len(of_batch)] = of_batch
            forced = np.tile(np.array(prefix_ids, np.int32), (rows, 1)) if prefix_ids else None
            limits = np.minimum(limits_of(ids, extra), np.int32(max_length))
            padded = jax.ShapeDtypeStruct((rows, width), np.int32)
            yield SearchBatch(indices, put_rows(ids, self.mesh), limits, max_length, forced, padded)

    def prefix_ids(self, prefix: str) -> list[int]:
        """The tokens of a prefix of translations, without white space at its end.

        Raises ConfigError when they decode to other text, as where the vocabulary lacks a character, and when they leave no
        position of the model for EOS.
        """
        target = self.tokenizers.target
        ids = target.encode(prefix.rstrip())
        written = target.decode(ids)
        if prefix.strip() and (UNK_ID in ids or written.split() != prefix.split()):
            raise ConfigError(f"prefix: {prefix!r} is {written!r} in the vocabulary of this run; give text that it has")
        if self._longest is not None and len(ids) >= self._longest:
            problem = f"{len(ids)} tokens leave none of the {self._longest} positions of the model for EOS"
            raise ConfigError(f"prefix: {problem}; give at most {self._longest - 1} tokens")
        return ids

    def _texts(self, found: Hypotheses, row: int) -> list[Translation]:
        results = zip(found.ids[row], found.scores[row], found.lengths[row], strict=True)
        translations = [translation_of(ids[:size], score, self.tokenizers) for ids, score, size in results if size]
        # Search finds nothing where no probability is a number; the sentence still needs a line.
        return translations or [NOTHING]


NOTHING = Translation("", 0.0, [])


def translation_of(ids: AnyArray, score: float | Array, tokenizers: TokenizerPair) -> Translation:
    """Tokens and their text, as one line: a tokenizer with byte fallback can generate a line break."""
    tokens = np.asarray(ids).tolist()
    return Translation(as_one_line(tokenizers.target.decode(tokens)), float(score), tokens)


def limits_of(source_ids: np.ndarray, max_extra_tokens: int) -> np.ndarray:
    """Length limit of the translation of each row [B, S]: source tokens + ``max_extra_tokens``, EOS counted on neither side.

    (Section 6.1.) 0 for a row of padding, which costs no step.
    """
    lengths = np.sum(source_ids != PAD_ID, axis=1, dtype=np.int32)
    return np.where(lengths > 0, lengths + np.int32(max_extra_tokens), 0).astype(np.int32)


def init_cache(
    model: Module, beam_width: int, params: PyTree, source_ids: Int[Array, "B S"], capacity: int
) -> DecodeCache:
    """The encoded source and empty beams for at most ``capacity`` tokens; rows of source ids end with EOS."""
    memory = call(model, params, "encode", Tokens.from_ids(source_ids), train=False)
    cache: DecodeCache = call(model, params, "init_cache", memory, beam_width=beam_width, max_length=capacity)
    return cache


def require_translatable(
    lengths: np.ndarray, limit: int, name: str, first: int = 1, longest: int | None = None
) -> None:
    """Raises SentenceTooLong for the first sentence of more than ``limit`` tokens; ``lengths`` include EOS.

    ``longest``: maximum length of a sequence of the model, EOS included; None: any.
    """
    problem = (
        f"are more than decoding.max_source_tokens={limit}; split it, or raise that if memory suffices for its square"
    )
    if longest is not None and longest <= limit:
        limit, problem = longest - 1, f"and EOS exceed the {longest} positions of the model; split it"
    too_long = np.flatnonzero(lengths > limit + 1)
    if len(too_long):
        index = int(too_long[0])
        raise SentenceTooLong(f"{name} {index + first}: {lengths[index] - 1:,} tokens {problem}", index)


def search_for(
    model: Module,
    decoding: DecodingConfig,
    mesh: Mesh,
    num_results: int,
    constraint: Constraint | None = None,
    parts: Mapping[str, Any] = MappingProxyType({}),
) -> SegmentedSearch:
    """The search of the settings, beam search or a part, whose inputs are source ids."""
    rules = Rules(decoding.beam_width, num_results, decoding.length_penalty, stop=decoding.stop)
    search = with_settings("search", decoding.search, parts)(rules)
    init: InitCache = partial(init_cache, model, decoding.beam_width)
    step: MakeStep = partial(step_of, model)
    if constraint is not None:
        init, step = constrained(init, step, decoding.beam_width, constraint)
    return SegmentedSearch(init, step, search, devices_of_search(mesh))


def devices_of_search(mesh: Mesh) -> SearchDevices:
    """The search over rows that are split over the devices of ``mesh``."""
    return SearchDevices(
        row_multiple=row_groups(mesh),
        constrain=constrain_rows(mesh),
        shard_map_rows=shard_map_rows(mesh),
        replicated=replicated(mesh),
        # Several devices wait for each other, so they must run programs in the same order.
        threads=THREADS if mesh.size == 1 else 1,
        waiting_bytes=row_groups(mesh) * WAITING_BYTES.get(device_of(mesh).platform, 8 << 30),
        few_shapes=few_shapes_on(mesh),
    )


def step_of(model: Module, params: PyTree) -> DecodeStep:
    return partial(call, model, params, "decode_step")


class Sampler:
    """Samples translations from the model of a translator by one rule; compiled programs are kept."""

    def __init__(self, translator: Translator, rule: SamplingRule) -> None:
        self._translator, self._rule = translator, rule
        self._search_for = cache(self._new_search)  # It keeps compiled programs.

    def translate(
        self,
        params: PyTree,
        sentences: Sequence[str],
        *,
        seed: int = 0,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
    ) -> list[list[Translation]]:
        """``num_results`` translations of each sentence, in the order of ``sentences``; of an empty one, one empty text.

        The samples of a sentence depend only on the seed, its number (counted from ``first``) and its text. Fewer results are
        the first of more. A sample is cut at its length limit.

        Raises SentenceTooLong when one is longer than ``decoding.max_source_tokens`` or the model allows.
        """
        nonempty, sources = self._translator.encode_sources(sentences, name, first)
        key = jax.random.key(seed)
        params = unshard_fsdp(params, self._translator.mesh, self._translator.compute_dtype), key
        in_row = -(-num_results // -(-num_results // MAX_SAMPLES))
        parts = [(index, copy) for index in range(len(sources)) for copy in range(0, num_results, in_row)]
        numbers = np.array([(nonempty[index] + first - 1, copy) for index, copy in parts], np.int32).reshape(-1, 2)
        drawn: dict[int, list[Translation]] = {}
        batches = self._batches([sources[index] for index, _ in parts], numbers)
        for rows, samples in self._search_for(in_row).search(params, batches):
            for row, part in enumerate(rows):
                each_sample = zip(samples.ids[row], samples.scores[row], samples.lengths[row], strict=True)
                drawn[part] = [
                    translation_of(ids[:length], score, self._translator.tokenizers)
                    for ids, score, length in each_sample
                ]
        found: list[list[Translation]] = [[] for _ in sources]
        for part, (index, _) in enumerate(parts):
            found[index] += drawn[part]
        results: list[list[Translation]] = [[NOTHING] for _ in sentences]
        for number, translations in zip(nonempty, found, strict=True):
            results[number] = translations[:num_results]
        return results

    def _batches(self, sources: Sequence[list[int]], numbers: np.ndarray) -> Iterator[SearchBatch]:
        """Sources with ``numbers`` [N, 2]: the number of the sentence, and of the first sample of the row."""
        for batch in self._translator.batches(sources, []):
            of_batch = np.where(batch.indices[:, None] >= 0, numbers[batch.indices], 0)
            shape = jax.ShapeDtypeStruct(of_batch.shape, of_batch.dtype)
            inputs = batch.inputs, put_rows(of_batch, self._translator.mesh)
            yield batch._replace(inputs=inputs, padded_inputs=(batch.padded_inputs, shape))

    def _new_search(self, samples: int) -> SegmentedSearch:
        """The search for rows of ``samples`` samples."""
        model, rules = self._translator.model, Rules(samples, samples, self._translator.decoding.length_penalty)
        init, search = partial(_cache_of_samples, model, samples), sampled_search(rules, self._rule)
        return SegmentedSearch(init, partial(_step, model), search, devices_of_search(self._translator.mesh))


def _cache_of_samples(
    model: Module, samples: int, params_and_key: PyTree, inputs: tuple[Array, Int[Array, "B 2"]], capacity: int
) -> DecodeCache:
    """The encoded sources before the first token, with a key for each sample."""
    (params, key), (source_ids, numbers) = params_and_key, inputs
    keys = jax.vmap(row_keys)(row_keys(key, numbers[:, 0]), numbers[:, 1:] + jnp.arange(samples)[None])
    return cache_with_keys(init_cache(model, samples, params, source_ids, capacity), keys)


def _step(model: Module, params_and_key: PyTree) -> DecodeStep:
    params, _ = params_and_key
    return step_beside_keys(step_of(model, params))


def translation_program(
    model: Module, decoding: DecodingConfig, width: int, mesh: Mesh, longest: int | None = None
) -> DecodingProgram:
    """Plain beam search over a full batch of sentences of ``width`` tokens, all translated to their length limit.

    ``longest``: maximum length of a sequence of the model; None: any.
    """
    batch_tokens, max_length = batch_tokens_on(mesh, decoding.batch_tokens), width + decoding.max_extra_tokens
    rows, max_length = rows_of_full_batch(width, batch_tokens, row_groups(mesh)), min(max_length, longest or max_length)
    rules = Rules(decoding.beam_width, 1, decoding.length_penalty, stop=decoding.stop)
    choose = shard_map_rows(mesh)(plain_search(rules).choose)

    def start(params: PyTree, source_ids: Int[Array, "B S"], capacity: int) -> BeamState:
        limits = jnp.full((rows,), max_length, jnp.int32)
        cache = init_cache(model, decoding.beam_width, params, source_ids, capacity)
        return start_search(cache, limits, capacity, rules=rules)

    def step(params: PyTree, state: BeamState) -> BeamState:
        return search_next(step_of(model, params), state, choose)

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    capacities = capacities_of(max_length, few_shapes_on(mesh))
    return DecodingProgram(rows, width, decoding.beam_width, inputs, start, step, capacities)
