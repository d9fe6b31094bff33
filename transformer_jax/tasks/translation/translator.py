"""Translation of text by beam search."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, PAD_ID, UNK_ID, AnyArray, Array, Int, PyTree
from transformer_jax.config import ConfigError, DataError, DecodingConfig
from transformer_jax.config.data import padded_width
from transformer_jax.data.text_files import as_one_line
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.decoding.beam_search import Hypotheses, Rules
from transformer_jax.decoding.segmented_search import (
    MIN_ROWS,
    InitCache,
    MakeStep,
    SearchBatch,
    SearchDevices,
    SegmentedSearch,
)
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.layers.mesh_axes import constrain_rows
from transformer_jax.registry.plugins import with_settings
from transformer_jax.runtime.hardware import batch_tokens_on, device_of, few_shapes_on
from transformer_jax.runtime.kept_programs import ProgramStore
from transformer_jax.sequence_types import DecodeCache, Tokens
from transformer_jax.tasks.remarks import remarks_on_output
from transformer_jax.training.sharding import put_rows, replicated, row_groups, shard_map_rows, unshard_fsdp

if TYPE_CHECKING:
    from transformer_jax.decoding.constraints import Constraint
    from transformer_jax.models.interface import Module

# Maximum number of beams in a batch: more are no faster on a CPU.
MAX_BEAMS = {"cpu": 5 * MIN_ROWS}
# Number of sentences up to which compiling for more than MIN_ROWS rows takes longer than it saves.
MIN_ROWS_UP_TO = 1024
# Number of sentences up to which two widths cost less than compiling programs for more.
SENTENCES_OF_A_VALIDATION = 10_000
# The state of shorter sources is padded to this width: compiling a program for every width takes
# longer than it saves.
MIN_SOURCE_COLUMNS = 64
# Searches at once. On a CPU the products of few rows use about one core. Other devices would wait
# while the host reads results.
THREADS = 2
# Bytes for a device and a search, 8 GiB on accelerators. Without a limit a model of base size
# would take 8 GB on a CPU, by calculation. For captions 2 GiB suffice: they took a fifth more time
# with a third of their groups.
WAITING_BYTES = {"cpu": 2 << 30}


class SentenceTooLong(DataError):
    """A sentence has more tokens than it may have; ``index`` is its index in the list."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class Translation(NamedTuple):
    """A hypothesis: text, length-normalized log-probability, and tokens, EOS included.

    ``remarks``: ``cut`` at the length limit, ``repeats`` the same tokens.
    """

    text: str
    score: float
    token_ids: list[int]
    remarks: tuple[str, ...] = ()


OnTranslation = Callable[[int, list[Translation]], None]
"""Takes the index of a sentence and its translations."""


class Prefix(NamedTuple):
    """The beginning of translations, from text by ``Translator.prefix``."""

    text: str = ""
    ids: tuple[int, ...] = ()


NO_PREFIX = Prefix()


class InOrder:
    """Passes results on in the order of their indices, as soon as all before are added."""

    def __init__(self, on_result: Callable[[int, Any], None]) -> None:
        self._on_result, self._waiting, self._next = on_result, dict[int, Any](), 0

    def add(self, index: int, result: Any) -> None:
        self._waiting[index] = result
        while (index := self._next) in self._waiting:
            self._next += 1
            self._on_result(index, self._waiting.pop(index))


class TextTranslator:
    """Translates sentences, by search or by sampling.

    ``translate_each(params, sentences, on_translation, **options)`` calls ``on_translation`` for
    the sentences in their order, as soon as all before are done.
    """

    translate_each: Callable[..., None]

    def translate(self, params: PyTree, sentences: Sequence[str], **options: Any) -> list[list[Translation]]:
        """Return the translations of sentences; ``options`` as in ``translate_each``."""
        results: list[list[Translation]] = []
        self.translate_each(params, sentences, lambda _, translations: results.append(translations), **options)
        return results


class Translator(TextTranslator):
    """Translates sentences with one model, and keeps compiled programs for a few shapes."""

    def __init__(
        self,
        model: Callable[[], "Module"],
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        mesh: Mesh,
        longest: int | None = None,
        compute_dtype: str = "float32",
        constraint: "Constraint | None" = None,
        parts: Mapping[str, Any] = MappingProxyType({}),
        store: ProgramStore | None = None,
    ) -> None:
        """Prepare searches, for which ``model()`` is called when a program is traced.

        A sequence has at most ``longest`` tokens, and ``compute_dtype`` is the type of products of
        the model. Beam search may choose the tokens of ``constraint``, whose inputs are source ids.
        ``parts`` are the settings of parts. ``store`` keeps the programs of beam search without a
        constraint.
        """
        self.tokenizers, self.decoding, self.mesh, self.compute_dtype = tokenizers, decoding, mesh, compute_dtype
        self._model, self._longest = model, longest
        # It keeps compiled programs.
        self._search_for = cache(lambda results: search_for(model, decoding, mesh, results, constraint, parts, store))

    @property
    def model(self) -> "Module":
        return self._model()

    def translate_each(
        self,
        params: PyTree,
        sentences: Sequence[str],
        on_translation: OnTranslation,
        *,
        num_results: int = 1,
        name: str = "sentence",
        first: int = 1,
        prefix: Prefix = NO_PREFIX,
    ) -> None:
        """Find the ``num_results`` best translations of sentences, best first.

        A blank sentence (``Tokenizer.is_blank``) has the empty translation. Every other translation
        begins with ``prefix``, whose last word it may continue. Raises, before the search,
        SentenceTooLong if a sentence is longer than ``decoding.max_source_tokens`` or the model
        allows, and DataError at a sentence that has no translation with the prefix. The message has
        ``name`` and the number of the sentence, counted from ``first``.
        """
        nonempty, sources = self.encode_sources(sentences, name, first)
        blank = set(range(len(sentences))).difference(nonempty)

        def check(index: int, translations: list[Translation]) -> None:
            if prefix.text.strip() and index not in blank and translations == [NOTHING]:
                problem = f"no translation that begins with {prefix.text!r} has a probability above 0"
                raise DataError(f"{name} {index + first}: {problem}; give another prefix or loosen the constraint")
            on_translation(index, translations)

        ordered = InOrder(check)
        for index in sorted(blank):
            ordered.add(index, [NOTHING])

        def on_done(rows: np.ndarray, hypotheses: Hypotheses) -> None:
            for number, row in enumerate(rows):
                ordered.add(nonempty[row], self._texts(hypotheses, number, sources[row], len(prefix.ids)))

        params = unshard_fsdp(params, self.mesh, self.compute_dtype)
        self._search_for(num_results).search(params, self.batches(sources, prefix.ids), on_done)

    def encode_sources(self, sentences: Sequence[str], name: str, first: int) -> tuple[list[int], list[list[int]]]:
        """Return the indices of the sentences that are not blank, and their tokens with EOS.

        Raises SentenceTooLong as ``require_translatable`` does.
        """
        encoded = self.tokenizers.source.encode_batch(sentences)
        is_blank = self.tokenizers.source.is_blank
        nonempty = [index for index, ids in enumerate(encoded) if not is_blank(sentences[index], ids)]
        sources = [[*encoded[index], EOS_ID] for index in nonempty]
        lengths = np.zeros(len(sentences), np.int64)
        lengths[nonempty] = [len(ids) for ids in sources]
        require_translatable(lengths, self.decoding.max_source_tokens, name, first, self._longest)
        return nonempty, sources

    def translate_ids(self, params: PyTree, sources: Sequence[list[int]]) -> list[list[Translation]]:
        """Return the best translation of sources, ids that end with EOS and are not EOS alone."""
        by_row: dict[int, list[Translation]] = {}

        def on_done(rows: np.ndarray, hypotheses: Hypotheses) -> None:
            for number, row in enumerate(rows):
                by_row[int(row)] = self._texts(hypotheses, number, sources[row], 0)

        params = unshard_fsdp(params, self.mesh, self.compute_dtype)
        self._search_for(1).search(params, self.batches(sources, ()), on_done)
        return [by_row[index] for index in range(len(sources))]

    def batches(self, sources: Sequence[list[int]], prefix_ids: Sequence[int]) -> Iterator[SearchBatch]:
        """Yield batches of all sources, ids [B, S], with batches of one shape next to another."""
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

    def prefix(self, text: str) -> Prefix:
        """Encode a prefix of translations, without white space at its end.

        Raises ConfigError if it decodes to other text, as when the vocabulary lacks a character, or
        leaves no position of the model for EOS.
        """
        target = self.tokenizers.target
        ids = target.encode(text.rstrip())
        written = target.decode(ids)
        if text.strip() and (UNK_ID in ids or written.split() != text.split()):
            problem = f"{text!r} is {written!r} in the vocabulary of this run"
            raise ConfigError("prefix", problem, "give text that it has")
        if self._longest is not None and len(ids) >= self._longest:
            problem = f"{len(ids)} tokens leave none of the {self._longest} positions of the model for EOS"
            raise ConfigError("prefix", problem, f"give at most {self._longest - 1} tokens")
        return Prefix(text, tuple(ids))

    def limit_of(self, source: Sequence[int], prefix: int = 0) -> int:
        """Return the length limit of the translation of a source, after ``prefix`` tokens."""
        limit = len(source) + self.decoding.max_extra_tokens + prefix
        return min(limit, self._longest or limit)

    def _texts(self, hypotheses: Hypotheses, row: int, source: Sequence[int], prefix: int) -> list[Translation]:
        results = zip(hypotheses.ids[row], hypotheses.scores[row], hypotheses.lengths[row], strict=True)
        limit = self.limit_of(source, prefix)
        translations = [
            translation_of(ids[:size], score, self.tokenizers, source, limit) for ids, score, size in results if size
        ]
        # Search returns nothing if no probability is a number. The sentence still needs a line.
        return translations or [NOTHING]


NOTHING = Translation("", 0.0, [])


def translation_of(
    ids: AnyArray, score: float | Array, tokenizers: TokenizerPair, source: Sequence[int], limit: int
) -> Translation:
    """Return tokens and text, as one line: byte fallback can generate a line break.

    ``limit``: the length limit of the translation of ``source``.
    """
    tokens = np.asarray(ids).tolist()
    remarks = remarks_on_output(tokens, limit, source, may_repeat=tokenizers.target.may_repeat)
    return Translation(as_one_line(tokenizers.target.decode(tokens)), float(score), tokens, remarks)


def limits_of(source_ids: np.ndarray, max_extra_tokens: int) -> np.ndarray:
    """Return the length limits of the translations of rows [B, S] (section 6.1).

    Source tokens + ``max_extra_tokens``, EOS counted on neither side; 0 for a row of padding, which
    costs no step.
    """
    lengths = np.sum(source_ids != PAD_ID, axis=1, dtype=np.int32)
    return np.where(lengths > 0, lengths + np.int32(max_extra_tokens), 0).astype(np.int32)


def init_cache(
    model: "Module", beam_width: int, params: PyTree, source_ids: Int[Array, "B S"], capacity: int
) -> DecodeCache:
    """Return the encoded source and empty beams for at most ``capacity`` tokens."""
    from transformer_jax.models.interface import call

    memory = call(model, params, "encode", Tokens.from_ids(source_ids), train=False)
    return call(model, params, "init_cache", memory, beam_width=beam_width, max_length=capacity)


def require_translatable(
    lengths: np.ndarray, limit: int, name: str, first: int = 1, longest: int | None = None
) -> None:
    """Raise SentenceTooLong for the first sentence of more than ``limit`` tokens.

    ``lengths`` include EOS, and so does ``longest``, the maximum of the model; None: any.
    """
    remedy = "split it, or raise that if memory suffices for its square"
    problem = f"are more than decoding.max_source_tokens={limit}; {remedy}"
    if longest is not None and longest <= limit:
        limit, problem = longest - 1, f"and EOS exceed the {longest} positions of the model; split it"
    too_long = np.flatnonzero(lengths > limit + 1)
    if len(too_long):
        index = int(too_long[0])
        raise SentenceTooLong(f"{name} {index + first}: {lengths[index] - 1:,} tokens {problem}", index)


def search_for(
    model: Callable[[], "Module"],
    decoding: DecodingConfig,
    mesh: Mesh,
    num_results: int,
    constraint: "Constraint | None" = None,
    parts: Mapping[str, Any] = MappingProxyType({}),
    store: ProgramStore | None = None,
) -> SegmentedSearch:
    """Return the search of the settings, beam search or a part, whose inputs are source ids.

    ``model()`` is evaluated when a program is traced; ``store`` keeps programs.
    """
    rules = Rules(decoding.beam_width, num_results, decoding.length_penalty, stop=decoding.stop)
    search = with_settings("search", decoding.search, parts)(rules)

    def init(params: PyTree, source_ids: Int[Array, "B S"], capacity: int) -> DecodeCache:
        return init_cache(model(), decoding.beam_width, params, source_ids, capacity)

    functions: tuple[InitCache, MakeStep] = init, lambda params: steps_of(model())(params)
    if constraint is not None:
        from transformer_jax.decoding.constraints import constrained

        functions = constrained(*functions, decoding.beam_width, constraint)
    kept = store.with_settings(num_results) if store else None
    return SegmentedSearch(*functions, search, devices_of_search(mesh), kept)


def devices_of_search(mesh: Mesh) -> SearchDevices:
    return SearchDevices(
        row_multiple=row_groups(mesh),
        constrain=constrain_rows(mesh),
        shard_map_rows=shard_map_rows(mesh),
        replicated=replicated(mesh),
        # Several devices wait for one another, so they must run programs in the same order.
        threads=THREADS if mesh.size == 1 else 1,
        waiting_bytes=row_groups(mesh) * WAITING_BYTES.get(device_of(mesh).platform, 8 << 30),
        few_shapes=few_shapes_on(mesh),
    )


def steps_of(model: "Module") -> MakeStep:
    """Return the function that makes the step of a model from its parameters."""
    from transformer_jax.models.interface import call

    return lambda params: partial(call, model, params, "decode_step")
