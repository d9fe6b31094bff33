"""Continuation of prompts: tokenizer, model and decoding."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, Array, Float, Int, PyTree
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.data import padded_width
from transformer_jax.config.language_model import GenerationConfig
from transformer_jax.data.documents import SEPARATORS
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.decoding.beam_search import BeamState, DecodeStep, Rules, plain_search, search_next, search_until
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.decoding.sampling import SamplingRule, cache_with_keys, row_keys, sampled_search, step_beside_keys
from transformer_jax.decoding.source_batches import rows_of_full_batch, source_batches
from transformer_jax.models.interface import Module, call
from transformer_jax.runtime.hardware import batch_tokens_on
from transformer_jax.sequence_types import DecodeCache
from transformer_jax.training.sharding import put_rows, replicated, row_groups, unshard_fsdp

# Characters that later tokens may change: incomplete UTF-8, and the first half of an escape.
UNFINISHED_CHARACTERS = "\ufffd\x1b"


def left_padded(rows: Sequence[Sequence[int]], num_rows: int, width: int) -> np.ndarray:
    """Return rows that end together, int32 ``[num_rows, width]``, with PAD on the left.

    Rows of PAD follow them. ``[[5, 6], [7]]`` in 3 rows of 3 is ``[[0, 5, 6], [0, 0, 7], [0, 0,
    0]]``.
    """
    ids = np.full((num_rows, width), PAD_ID, np.int32)
    for row, tokens in enumerate(rows):
        ids[row, width - len(tokens) :] = tokens
    return ids


def tokens_before_document(config: ExperimentConfig) -> list[int]:
    """Return the tokens between BOS and a document: in a stream, the EOS of another one."""
    return [EOS_ID] if config.batching.kind == "split" else []


def cache_after_prompt(cache: DecodeCache, last_ids: Int[Array, "B"]) -> DecodeCache:
    """Return the cache for ``step_after_prompt``, from one without the last tokens."""
    return DecodeCache((cache.per_beam, jnp.ones((), bool)), (cache.per_sentence, last_ids), cache.kv_cache)


def step_after_prompt(step: DecodeStep) -> DecodeStep:
    """Return ``step``, changed so that its first call reads the last tokens of prompts, not BOS."""

    def continued(token_ids: Int[Array, "B W"], cache: DecodeCache) -> tuple[Float[Array, "B W V"], DecodeCache]:
        (inner, is_first), (shared, last_ids) = cache.per_beam, cache.per_sentence
        token_ids = jnp.where(is_first, last_ids[:, None], token_ids)
        logits, after = step(token_ids, DecodeCache(inner, shared, cache.kv_cache))
        return logits, DecodeCache((after.per_beam, jnp.zeros((), bool)), cache.per_sentence, after.kv_cache)

    return continued


class Continuation(NamedTuple):
    """Text, tokens (EOS if generated) and log-probability of the continuation of a prompt."""

    text: str
    token_ids: list[int]
    log_prob: float


class PromptWindows(NamedTuple):
    """Token ids of prompts, BOS included, and a remark if the model sees only the end of one."""

    ids: list[list[int]]
    remark: str = ""


class Generator:
    """Continues prompts with one model, and keeps compiled programs for a few shapes."""

    def __init__(self, model: Module, tokenizer: Tokenizer, config: ExperimentConfig, mesh: Mesh) -> None:
        self._tokenizer = tokenizer
        self._decoding: GenerationConfig = config.decoding
        self._context_length = config.batching.context_length
        self._separator = SEPARATORS[config.data.documents]
        self._before = tokens_before_document(config)
        self._mesh, self._compute_dtype = mesh, config.model.compute_dtype
        decoder = PromptDecoder(model, self._decoding)
        compiled = partial(jax.jit, out_shardings=replicated(mesh))
        self._continue, self._start = compiled(decoder.continuations), compiled(decoder.start)
        self._next = compiled(decoder.next, donate_argnames="state")

    def windows(self, prompts: Sequence[str], name: str = "prompt") -> PromptWindows:
        """Return BOS and the end of prompts that fits, with new tokens, into the context.

        Documents in a prompt have EOS between them. Raises DataError, which begins with ``name``,
        if no token of a prompt would fit, or if it has several documents and the model was trained
        to see one at a time.
        """
        names = [f"{name} {number}" if len(prompts) > 1 else name for number in range(1, len(prompts) + 1)]
        encoded = [self._encoded(prompt, title) for title, prompt in zip(names, prompts, strict=True)]
        window = self._window
        long = [index for index, ids in enumerate(encoded) if len(ids) - 1 > window]
        if not long:
            return PromptWindows(encoded)
        sizes = f"decoding.max_new_tokens={self._decoding.max_new_tokens} of a context of {self._context_length} tokens"
        first, tokens = names[long[0]], len(encoded[long[0]]) - 1
        if not window:
            raise DataError(f"{first}: {sizes} do not fit beside its {tokens} tokens; lower decoding.max_new_tokens")
        others = f" ({len(long) - 1} more are too long, too)" if len(long) > 1 else ""
        remark = f"{first}: has {tokens} tokens{others}; {sizes} leave the model the last {window}"
        return PromptWindows([[BOS_ID, *ids[1:][-window:]] for ids in encoded], remark)

    def _rows(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the ids of ``windows``, after the tokens before a document if these fit."""
        rows = self.windows(prompts).ids
        return [[BOS_ID, *self._before, *ids[1:]] if len(ids) <= self._window else ids for ids in rows]

    @property
    def _window(self) -> int:
        """The maximum number of tokens of a prompt that the model sees, without BOS."""
        return self._context_length - self._decoding.max_new_tokens

    def _encoded(self, prompt: str, name: str) -> list[int]:
        documents = prompt.split(self._separator)
        if len(documents) > 1 and not self._before:
            problem = f"has {len(documents)} documents (separated by {self._separator!r})"
            reason = "with batching.kind=packed the model sees one at a time; give the last alone"
            raise DataError(f"{name}: {problem}, but {reason}")
        texts = chain.from_iterable([*self._tokenizer.encode(document), EOS_ID] for document in documents)
        return [BOS_ID, *texts][:-1]

    def continuations(self, params: PyTree, prompts: Sequence[str], *, seed: int = 0) -> list[Continuation]:
        """Return continuations of prompts: sampled, or the best of beam search.

        The sample for prompt ``i`` depends only on ``seed``, ``i`` and the prompt. Raises DataError
        as ``windows`` does, before anything is computed.
        """
        encoded = self._rows(prompts)
        results = [Continuation("", [], 0.0)] * len(encoded)
        params = unshard_fsdp(params, self._mesh, self._compute_dtype)
        batch_tokens, row_multiple = batch_tokens_on(self._mesh, self._decoding.batch_tokens), row_groups(self._mesh)
        for batch in source_batches(encoded, batch_tokens=batch_tokens, row_multiple=row_multiple):
            rows = [encoded[index] for index in batch.indices]
            ids = left_padded(rows, len(batch.ids), self._width(max(map(len, rows))))
            row_ids = np.zeros(len(ids), np.int32)
            row_ids[: len(rows)] = batch.indices
            decoded = jax.device_get(
                self._continue(params, *put_rows((ids, row_ids), self._mesh), jax.random.key(seed))
            )
            for index, tokens, length, log_prob in zip(batch.indices, *decoded, strict=False):
                token_ids = tokens[:length].tolist()
                results[index] = Continuation(self._text_after(encoded[index], token_ids), token_ids, float(log_prob))
        return results

    def stream(self, params: PyTree, prompt: str, *, seed: int = 0) -> Iterator[str]:
        """Yield the text of a sampled continuation in pieces, as their characters are complete.

        Together they equal ``continuations`` of this prompt. Raises DataError as ``windows`` does.
        """
        (encoded,) = self._rows([prompt])
        params = unshard_fsdp(params, self._mesh, self._compute_dtype)
        rows = row_groups(self._mesh)
        ids = left_padded([encoded], rows, self._width(len(encoded)))
        state = self._start(params, *put_rows((ids, np.zeros(rows, np.int32)), self._mesh), jax.random.key(seed))
        token_ids: list[int] = []
        written = ""
        while True:
            state = self._next(params, state)
            token_ids.append(int(state.alive.last_ids[0, 0]))
            is_last = bool(state.is_done[0])
            text = self._text_after(encoded, token_ids)
            complete = text if is_last else text.rstrip(UNFINISHED_CHARACTERS)
            if new := complete[len(written) :]:
                yield new
                written = complete
            if is_last:
                return

    def _text_after(self, prompt_ids: list[int], token_ids: list[int]) -> str:
        begin = max(index for index, token in enumerate(prompt_ids) if token in (BOS_ID, EOS_ID)) + 1
        prefix = prompt_ids[begin:]
        return self._tokenizer.decode(prefix + token_ids)[len(self._tokenizer.decode(prefix)) :]

    def _width(self, longest: int) -> int:
        """Return a width from a small set, at least ``longest``, at most the window and BOS."""
        return min(padded_width(longest), self._window + 1)


class PromptDecoder:
    """Sampling or beam search after left-padded prompts [B, P], without steps in padding rows."""

    def __init__(self, model: Module, decoding: GenerationConfig) -> None:
        self._model, self._decoding = model, decoding
        rules = Rules(decoding.beam_width, 1, decoding.length_penalty)
        rule = SamplingRule(decoding.temperature, decoding.top_k, decoding.top_p)
        self._search = sampled_search(rules, rule) if decoding.beam_width == 1 else plain_search(rules)

    def continuations(
        self, params: PyTree, ids: Int[Array, "B P"], row_ids: Int[Array, "B"], key: Array
    ) -> tuple[Int[Array, "B T"], Int[Array, "B"], Array]:
        """Return tokens, lengths and log-probabilities of the continuations.

        Beam search always ends with EOS. A sample may be cut at ``max_new_tokens``.
        """
        state = self.start(params, ids, row_ids, key)
        state = search_until(partial(self.next, params), state, self._decoding.max_new_tokens)
        results = self._search.results(state)
        return results.ids[:, 0], results.lengths[:, 0], results.log_probs[:, 0]

    def start(self, params: PyTree, ids: Int[Array, "B P"], row_ids: Int[Array, "B"], key: Array) -> BeamState:
        """Return the state after all tokens of the prompts but the last."""
        length = self._decoding.max_new_tokens
        sizes = {"beam_width": self._decoding.beam_width, "max_length": length}
        cache = cache_after_prompt(call(self._model, params, "init_cache", ids[:, :-1], **sizes), ids[:, -1])
        limits = jnp.where(ids[:, -1] == PAD_ID, 0, length)
        # Beam search does not read the keys.
        return self._search.start(cache_with_keys(cache, row_keys(key, row_ids)[:, None]), limits, length)

    def next(self, params: PyTree, state: BeamState) -> BeamState:
        """Read the last token of every row, at first of the prompt, and add one."""
        step = step_after_prompt(partial(call, self._model, params, "decode_step"))
        return search_next(step_beside_keys(step), state, self._search.choose)


def generation_program(model: Module, decoding: GenerationConfig, width: int, mesh: Mesh) -> DecodingProgram:
    """Return the decoding of ``Generator`` for a full batch of prompts of ``width`` tokens."""
    batch_tokens = batch_tokens_on(mesh, decoding.batch_tokens)
    rows, max_length = row_groups(mesh) * rows_of_full_batch(width, batch_tokens), decoding.max_new_tokens
    decoder = PromptDecoder(model, decoding)

    def start(params: PyTree, ids: Int[Array, "B P"], capacity: int) -> BeamState:
        return decoder.start(params, ids, jnp.arange(rows), jax.random.key(0))

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    return DecodingProgram(rows, width, decoding.beam_width, inputs, start, decoder.next, [(max_length, max_length)])
