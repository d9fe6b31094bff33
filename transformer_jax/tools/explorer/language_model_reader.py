"""A trained language model, as the explorer asks it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice

import numpy as np

from transformer_jax.array_types import EOS_ID, Array, Int, PyTree
from transformer_jax.config import ConfigError
from transformer_jax.data.documents import open_documents
from transformer_jax.decoding.beam_search import Rules
from transformer_jax.decoding.prompts import cache_after_prompt, step_after_prompt
from transformer_jax.evaluation.word_alignment import GoldAlignment
from transformer_jax.models.interface import call
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.tasks.language_model.reading import axes_of, ids_of_text
from transformer_jax.tasks.language_model.task import LanguageModelTask
from transformer_jax.tasks.trained_run import TrainedRun
from transformer_jax.tools.explorer.attention_readings import attention_readings
from transformer_jax.tools.explorer.head_statistics import HeadStatistics, head_statistics
from transformer_jax.tools.explorer.reading import LAYER, NamedArray, Reading
from transformer_jax.tools.explorer.rollout import rollout
from transformer_jax.tools.explorer.search_tree import Forced, SearchTree
from transformer_jax.tools.explorer.searches import Searches
from transformer_jax.tools.explorer.teacher_forcing import TeacherForcing

# Of a run that samples: one beam would be no tree.
BEAMS_OF_SAMPLING = 4


class LanguageModelReader:
    """Reads texts with one run, and continues them."""

    def __init__(self, trained: TrainedRun[LanguageModelTask]) -> None:
        self._trained = trained
        self._teacher_forcing = TeacherForcing(trained.model, trained.config.model.longest_sequence)

    def read(self, text: str, target: str | None = None, *, with_gradients: bool = True) -> Reading:
        """The text with its EOS; there is no ``target``. Raises DataError when it exceeds the context of the training."""
        del target
        tokenizer, params = self._trained.task.tokenizer, self._trained.params
        ids = ids_of_text(tokenizer, text, self._trained.config.batching.context_length)
        tokens = axes_of(tokenizer, ids)
        passed = self._teacher_forcing(params, [ids], with_gradients=with_gradients)
        readings = [
            replace(each, rollout=NamedArray((LAYER, each.rows, each.columns), rollout(each.weights.values)))
            for each in attention_readings(passed.records, {name: len(each) for name, each in tokens.items()})
        ]
        gradients = dict(
            zip(["decoder"], [NamedArray(("target", "input"), each) for each in passed.gradients], strict=False)
        )
        return Reading(text, None, tokens, readings, gradients, passed.log_probs.tolist())

    @cached_property
    def _searches(self) -> Searches:
        decoding, model = self._trained.config.decoding, self._trained.model
        beams = decoding.beam_width if decoding.beam_width > 1 else BEAMS_OF_SAMPLING

        def init_cache(params: PyTree, ids: Int[Array, "B P"], room: int) -> DecodeCache:
            cache = call(model, params, "init_cache", ids[:, :-1], beam_width=beams, max_length=room)
            return cache_after_prompt(cache, ids[:, -1])

        return Searches(
            init_cache,
            lambda params: step_after_prompt(partial(call, model, params, "decode_step")),
            Rules(beams, beams, decoding.length_penalty),
            self._trained.task.tokenizer,
        )

    def search(self, text: str, alternatives: int) -> SearchTree:
        """Beam search for what follows a text, and what it finds when forced to begin with the best ``alternatives``.

        Raises DataError when the text and ``decoding.max_new_tokens`` exceed the context of the training.
        """
        return self._searches.tree(self._trained.params, *self._prompt(text), alternatives)

    def forced(self, text: str, prefix: Sequence[int]) -> Forced:
        """The best continuation that begins with these tokens; raises DataError where none can."""
        return self._searches.forced(self._trained.params, *self._prompt(text), prefix)

    def statistics(self, split: str, limit: int) -> list[HeadStatistics]:
        """Averages over the first ``limit`` documents of a split of the data of the run, each cut to the context."""
        config, tokenizer = self._trained.config, self._trained.task.tokenizer
        documents = open_documents(config.data, config.data_seed).documents(config.data.split_name(split))
        encoded = tokenizer.encode_batch([document.text for document in islice(documents, limit)])
        side = [[*ids, EOS_ID][: config.batching.context_length] for ids in encoded]
        return head_statistics(
            self._trained.model, self._trained.params, [tokenizer], [side], config.model.longest_sequence
        )

    def error_rates(self, pairs: Sequence[tuple[str, str]], gold: Sequence[GoldAlignment], name: str) -> np.ndarray:
        """Raises ConfigError: there is nothing to align."""
        raise ConfigError("--gold: a language model has no source to align with")

    def _prompt(self, text: str) -> tuple[np.ndarray, int, int]:
        ids = np.asarray([self._trained.task.generator.prompt_ids(text, "--text")], np.int32)
        most = self._trained.config.decoding.max_new_tokens
        return ids, most, most
