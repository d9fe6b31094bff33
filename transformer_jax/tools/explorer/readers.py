"""Readers of trained runs, by task: attention, searches and statistics of heads."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Generic, Self

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import EOS_ID, Array, Int, PyTree
from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.documents import open_documents
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.decoding.beam_search import Rules
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.files.paths import as_path
from transformer_jax.models.interface import call
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory, short_names
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.language_model.generator import cache_after_prompt, step_after_prompt
from transformer_jax.tasks.language_model.language_model_task import LanguageModelTask, axes_of, ids_of_text
from transformer_jax.tasks.trained_run import AnyTask, TrainedRun, open_trained, restored_params
from transformer_jax.tasks.translation.pairs import encode_pairs, require_visible, tokens_of_pair
from transformer_jax.tasks.translation.translation_task import TranslationTask
from transformer_jax.tasks.translation.translator import init_cache, limits_of, require_translatable
from transformer_jax.tools.explorer.head_statistics import (
    HeadStatistics,
    head_error_rates,
    head_statistics,
    sums_of_heads,
)
from transformer_jax.tools.explorer.live import beams_of
from transformer_jax.tools.explorer.page import RunName
from transformer_jax.tools.explorer.readings import Reading, TextReader
from transformer_jax.tools.explorer.searches import Forced, Searches, SearchTree
from transformer_jax.tools.explorer.soft_alignment import compiled_weights, cross_attention
from transformer_jax.tools.explorer.word_alignment import GoldAlignment

EXAMPLE_TOKENS = 6, 24
"""The shortest and the longest example, so that its picture can be read."""


class _RunReader(Generic[AnyTask]):
    def __init__(self, trained: TrainedRun[AnyTask], name: str = "") -> None:
        self.trained, self._name = trained, name
        self._sums = jax.jit(partial(sums_of_heads, trained.model))
        self._read = TextReader(trained.model, trained.config.model.longest_sequence)

    @property
    def name(self) -> RunName:
        """Name and updates of the run, and the numbers of its layers with attention."""
        layers = {kind: numbers for kind, (numbers, _) in self.trained.config.model.attention_layers.items()}
        return RunName(self._name, f"update {', '.join(f'{step:,}' for step in self.trained.steps)}", layers)

    def examples(self, limit: int) -> list[str]:
        """Return up to ``limit`` short validation texts, none if the files are gone."""
        least, most = EXAMPLE_TOKENS
        encode, texts = self.trained.tokenizers.source.encode, []
        with suppress(DataError, ConfigError, OSError):
            texts = self._validation_texts(20 * limit)
        return [text for text in dict.fromkeys(texts) if least <= len(encode(text)) <= most][:limit]

    def _validation_texts(self, limit: int) -> list[str]:
        raise NotImplementedError

    @property
    def _searches(self) -> Searches:
        raise NotImplementedError

    def _inputs(self, text: str) -> tuple[np.ndarray, int, int]:
        """Return padded ids of a row, maximum length of a hypothesis, capacity of its arrays."""
        raise NotImplementedError

    def search(self, text: str, alternatives: int) -> SearchTree:
        """Return the beam search for a text, and its results when forced to begin otherwise."""
        return self._searches.tree(self.trained.params, *self._inputs(text), alternatives)

    def forced(self, text: str, prefix: tuple[int, ...]) -> Forced:
        """Return the best hypothesis that begins with ``prefix``."""
        return self._searches.forced(self.trained.params, *self._inputs(text), [prefix])[0]

    def at_checkpoint(self, run: RunDirectory, step: int) -> Self:
        """Return a reader of another checkpoint of the run, with the same compiled programs."""
        task, other = self.trained.task, copy(self)
        params, steps = restored_params(run, task.param_shapes(), task.mesh, str(step), 1)
        other.trained = replace(self.trained, params=params, steps=tuple(steps))
        return other


class TranslationReader(_RunReader[TranslationTask]):
    """Reads pairs. Raises DataError for a side longer than ``decoding.max_source_tokens``."""

    def __init__(self, trained: TrainedRun[TranslationTask], name: str = "") -> None:
        super().__init__(trained, name)
        self._weigh = compiled_weights(trained, partial(jnp.stack, axis=1))

    def require_texts(self, texts: Sequence[str], *, with_search: bool) -> None:
        """Raise DataError with its number for the first text that is too long or blank."""
        source = self.trained.tokenizers.source
        encoded = list(map(source.encode, texts))
        for number, (text, ids) in enumerate(zip(texts, encoded, strict=True), start=1):
            require_visible(source, text, ids, f"--text {number}")
        self._require_short(encoded, "--text", 1)

    def _require_short(self, rows: Sequence[Sequence[int]], name: str, first: int) -> None:
        limit, longest = self.trained.config.decoding.max_source_tokens, self.trained.config.model.longest_sequence
        require_translatable(np.array([len(ids) + 1 for ids in rows]), limit, name, first, longest)

    def read(self, text: str, target: str | None = None, number: int = 1, **options: bool) -> Reading:
        """Return a teacher-forced pass over a text and its translation, by default the run's.

        ``number`` of the text is for errors. ``options`` are keywords of ``TextReader``.
        """
        trained, name = self.trained, "--translation"
        if target is None:
            name = "the translation of --text"
            target = trained.task.translator.translate(trained.params, [text], name="--text", first=number)[0][0].text
        ids, tokens = tokens_of_pair(trained.tokenizers, text, target)
        for side, name_of_side in zip(ids, ("--text", name), strict=True):
            self._require_short([side[:-1]], name_of_side, number)
        return self._read(trained.params, text, target, tokens, ids, **options)

    @cached_property
    def _searches(self) -> Searches:
        decoding, model = self.trained.config.decoding, self.trained.model
        if decoding.search != "beam":
            raise ConfigError("decoding.search", f"{decoding.search} cannot be replayed", "set it to beam")
        return Searches(
            partial(init_cache, model, decoding.beam_width),
            lambda params: partial(call, model, params, "decode_step"),
            Rules(decoding.beam_width, decoding.beam_width, decoding.length_penalty, stop=decoding.stop),
            self.trained.tokenizers.target,
        )

    def _inputs(self, text: str) -> tuple[np.ndarray, int, int]:
        config, longest = self.trained.config.decoding, self.trained.config.model.longest_sequence
        ids = [*self.trained.tokenizers.source.encode(text), EOS_ID]
        require_translatable(np.array([len(ids)]), config.max_source_tokens, "text", longest=longest)
        (batch,) = source_batches([ids], batch_tokens=1, longest=longest)
        extra = config.max_extra_tokens
        capacity = batch.ids.shape[1] + extra
        capacity = min(capacity, longest or capacity)
        return batch.ids, min(int(limits_of(batch.ids, extra)[0]), capacity), capacity

    def statistics(self, split: str, limit: int) -> list[HeadStatistics]:
        """Return the statistics of heads over the first ``limit`` examples of a split."""
        trained, pairs = self.trained, self._pairs(self.trained.config.data.split_name(split), limit)
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        limit, longest = trained.config.decoding.max_source_tokens, trained.config.model.longest_sequence
        sides = encode_pairs(trained.tokenizers, sources, targets, limit, longest)
        return head_statistics(self._sums, trained.params, trained.tokenizers, sides, longest)

    def _validation_texts(self, limit: int) -> list[str]:
        return [pair.source for pair in self._pairs(self.trained.config.data.split_name("validation"), limit)]

    def _pairs(self, split: str, limit: int) -> list[SentencePair]:
        return self.trained.task.evaluator.pairs(split, limit)

    def error_rates(self, pairs: Sequence[tuple[str, str]], gold: Sequence[GoldAlignment], name: str) -> np.ndarray:
        """Return the error rates [L, H] of cross attention. ``name`` is the file of ``gold``."""
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        weights = cross_attention(self.trained, sources, targets, self._weigh)
        return head_error_rates(weights, self.trained.tokenizers, pairs, gold, name)


class ParsingReader(TranslationReader):
    """Reads sentences with a parser. The reading has the tree."""

    def read(self, text: str, target: str | None = None, number: int = 1, **options: bool) -> Reading:
        reading = super().read(text, target, number, **options)
        tree = self.trained.task.outline(reading.text, reading.translation or "")  # type: ignore[attr-defined]  # ParsingTask
        return replace(reading, tree=tree)

    def _pairs(self, split: str, limit: int) -> list[SentencePair]:
        """Return sentences and the symbols of their trees."""
        return list(islice(self.trained.task.corpus.pairs(split), limit))


PROMPT_WORDS = 6


class LanguageModelReader(_RunReader[LanguageModelTask]):
    """Reads and continues texts. ``target`` is not used.

    Raises DataError if a text, plus ``decoding.max_new_tokens`` in a search, exceeds the context
    length in training.
    """

    def require_texts(self, texts: Sequence[str], *, with_search: bool) -> None:
        for number, text in enumerate(texts, start=1):
            self._ids(text, number)
        if with_search:
            self._windows(texts)

    def _ids(self, text: str, number: int) -> list[int]:
        return ids_of_text(
            self.trained.task.tokenizer, text, self.trained.config.batching.context_length, f"--text {number}"
        )

    def read(self, text: str, target: str | None = None, number: int = 1, **options: bool) -> Reading:
        ids = self._ids(text, number)
        tokens = axes_of(self.trained.task.tokenizer, ids)
        return self._read(self.trained.params, text, None, tokens, [ids], **options)

    @cached_property
    def _searches(self) -> Searches:
        decoding, model = self.trained.config.decoding, self.trained.model
        beams = beams_of(decoding.beam_width)

        def init_cache(params: PyTree, ids: Int[Array, "B P"], capacity: int) -> DecodeCache:
            cache = call(model, params, "init_cache", ids[:, :-1], beam_width=beams, max_length=capacity)
            return cache_after_prompt(cache, ids[:, -1])

        return Searches(
            init_cache,
            lambda params: step_after_prompt(partial(call, model, params, "decode_step")),
            Rules(beams, beams, decoding.length_penalty),
            self.trained.task.tokenizer,
        )

    def _inputs(self, text: str) -> tuple[np.ndarray, int, int]:
        limit = self.trained.config.decoding.max_new_tokens
        return np.asarray(self._windows([text]), np.int32), limit, limit

    def _windows(self, texts: Sequence[str]) -> list[list[int]]:
        ids, remark = self.trained.task.generator.windows(texts, "--text")
        if remark:
            raise DataError(f"{remark}: shorten the text")
        return ids

    def _validation_texts(self, limit: int) -> list[str]:
        return [" ".join(text.split()[:PROMPT_WORDS]) for text in self._documents("validation", limit)]

    def _documents(self, split: str, limit: int) -> list[str]:
        data, seed = self.trained.config.data, self.trained.config.data_seed
        return [
            document.text for document in islice(open_documents(data, seed).documents(data.split_name(split)), limit)
        ]

    def statistics(self, split: str, limit: int) -> list[HeadStatistics]:
        config, tokenizer = self.trained.config, self.trained.task.tokenizer
        encoded = tokenizer.encode_batch(self._documents(split, limit))
        side = [[*ids, EOS_ID][: config.batching.context_length] for ids in encoded]
        tables = head_statistics(self._sums, self.trained.params, [tokenizer], [side], config.model.longest_sequence)
        cut = f"documents (at most {config.batching.context_length} tokens of each)"
        return [replace(table, source=f"{table.source} {cut}") for table in tables]

    def error_rates(self, pairs: Sequence[tuple[str, str]], gold: Sequence[GoldAlignment], name: str) -> np.ndarray:
        raise ConfigError("--gold", "a language model has no source to align with")


Reader = TranslationReader | LanguageModelReader
READERS: dict[str, Callable[..., Reader]] = {
    "translation": TranslationReader,
    "parsing": ParsingReader,
    "language_model": LanguageModelReader,
}


def open_readers(runs: Sequence[ChosenRun], average: int) -> list[Reader]:
    """Restore runs with the mean of ``average`` checkpoints.

    Raises ConfigError if the task of a run reads no text.
    """
    for run in runs:
        if run.config.task not in READERS:
            problem = f"{run.workdir} is a run of task={run.config.task}; explore takes {', '.join(READERS)}"
            raise ConfigError("--workdir", problem)
    names = short_names([as_path(run.workdir) for run in runs])
    return [
        READERS[run.config.task](open_trained(run, average=average), name)
        for run, name in zip(runs, names, strict=True)
    ]
