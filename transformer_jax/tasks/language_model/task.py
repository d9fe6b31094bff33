"""Language modeling as a task: training data, evaluation, scores and attention of given text."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig, Hyperparameters
from transformer_jax.data.batches import SCORING_TOKENS
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.documents import NamedTexts, open_documents
from transformer_jax.data.mixture import describe_shares, ranges_of, times_an_epoch
from transformer_jax.data.pipeline import fetched_batches, read_by_threads
from transformer_jax.data.text_rows import (
    PADDING_ROW,
    RowPlan,
    TextRows,
    plan_rows,
    rows_of_mixture,
    rows_of_store,
    tokens_of_corpora,
)
from transformer_jax.data.token_store import DocumentStore, unigram_entropy
from transformer_jax.data.tokenizers import TokenizerPair, train_text_tokenizer
from transformer_jax.evaluation.scores import perplexity
from transformer_jax.models.inspection import attention_maps
from transformer_jax.models.interface import activations
from transformer_jax.notebook import table
from transformer_jax.sequence_types import Tokens, batch_shape
from transformer_jax.tasks.language_model.generator import Generator, generation_program
from transformer_jax.tasks.language_model.objective import LanguageModelObjective
from transformer_jax.tasks.language_model.reading import axes_of, ids_of_text, score_texts
from transformer_jax.tasks.task import DataReport, DecodingProgram, WithoutOutputs, finite_or_null
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.tasks.texts import TextAttention, TokenScores, weights_by_kind
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import parts_of_rows, put_rows, replicated, row_groups

GIVEN = "test"
"""The split that a given file stands for."""


@dataclass(frozen=True)
class LanguageModelEvaluation(WithoutOutputs):
    """One evaluation: sums over a split, or its first ``documents``, divided once, at the end.

    ``nll``: negative log-likelihood in nats of all ``tokens``, including the EOS of every document. ``num_bytes``: UTF-8 bytes
    of the raw text, line feeds included. ``context_length``: maximum number of tokens in a window; ``stride``: how many of
    them are scored. ``corpora``: metrics by corpus of a mixture.
    """

    split: str
    nll: float
    correct: float
    tokens: int
    num_bytes: int
    documents: int
    context_length: int
    stride: int
    corpora: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: "Mapping[str, LanguageModelEvaluation]") -> "LanguageModelEvaluation":
        """The sums over the corpora of a mixture, with loss and bits per byte of each."""
        first = next(iter(parts.values()))
        counted = ("nll", "correct", "tokens", "num_bytes", "documents")
        sums: dict[str, Any] = {name: sum(getattr(part, name) for part in parts.values()) for name in counted}
        corpora = {
            corpus: {name: part.metrics[name] for name in ("loss", "bits_per_byte")} for corpus, part in parts.items()
        }
        return replace(first, **sums, corpora=corpora)

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Bits of all tokens over bytes of the text.

        An upper bound: only one tokenization of the text is scored.
        """
        return self.nll / math.log(2) / self.num_bytes

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "loss": self.loss,
            "perplexity": perplexity(self.nll, self.tokens),
            "bits_per_byte": self.bits_per_byte,
            "accuracy": self.correct / self.tokens,
            **{f"{name}_{corpus}": value for corpus, found in self.corpora.items() for name, value in found.items()},
        }

    @property
    def summary(self) -> str:
        return f"{self.bits_per_byte:.4f} bits per byte, perplexity {self.metrics['perplexity']:.3f}"

    def to_json(self) -> dict[str, object]:
        return finite_or_null(asdict(self) | self.metrics)

    def rows(self) -> list[tuple[str, str, str]]:
        overlap = "no overlap" if self.stride == self.context_length else f"{self.stride} of them new"
        return [
            ("split", self.split, f"{self.documents:,} documents, {self.num_bytes:,} bytes, {self.tokens:,} tokens"),
            ("bits per byte", f"{self.bits_per_byte:.4f}", "of the raw text, line feeds included"),
            ("loss", f"{self.loss:.4f}", "nats per token, no label smoothing"),
            ("perplexity", f"{self.metrics['perplexity']:.3f}", "per token"),
            ("accuracy", f"{self.metrics['accuracy']:.2%}", "of tokens that were the most probable"),
            ("context", f"{self.context_length:,}", f"tokens, {overlap}"),
            *(
                (f"bits per byte of {each}", f"{found['bits_per_byte']:.4f}", "")
                for each, found in self.corpora.items()
            ),
        ]

    def _repr_html_(self) -> str:
        return table(self.rows())


@dataclass(frozen=True)
class LanguageModelData:
    """The tokenized training split as rows of ``width`` tokens, and the assignment of rows to updates."""

    split: str
    store: DocumentStore
    rows: TextRows
    plan: RowPlan
    width: int
    mesh: Mesh
    times: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def report(self) -> DataReport:
        store, plan = self.store, self.plan
        sizes = tokens_of_corpora(store)
        mixture, lines = describe_shares(sizes, self.times, "tokens")
        total = sum(self.times[name] * tokens for name, tokens in sizes.items()) or store.num_tokens
        padding = max(1 - total / (plan.updates_per_epoch * plan.rows_per_update * self.width), 0.0)
        rows = {"rows": plan.num_rows, "updates_per_epoch": plan.updates_per_epoch, "padding_share": padding}
        text = (
            f"{self.split}: {store.num_documents:,} documents, {store.num_tokens:,} tokens\n"
            f"batches: {plan.updates_per_epoch:,} an epoch, {plan.rows_per_update} rows of {self.width} tokens each; "
            f"padding {padding:.1%}"
        )
        content = {
            "training": store.to_json(),
            "batches": rows,
            "unigram_entropy": unigram_entropy(store.ids, sizes, self.times),
        }
        return DataReport(content | mixture, "\n".join([text, *lines]))

    def batch_shapes(self, first_update: int) -> list[Tokens]:
        del first_update
        return [batch_shape(self.plan.rows_per_update, self.width, self.width).target]

    def require_sound(self) -> None:
        """Waits for the check of the whole token store; raises DataError where it is damaged."""
        self.store.check.finish()

    def batches(self, first_update: int) -> Iterator[Tokens]:
        parts, count = parts_of_rows(self.mesh)

        def own_rows(update: int) -> np.ndarray:
            return self.plan.rows(update).reshape(count, -1)[list(parts)].reshape(-1)

        def read(update: int) -> Tokens:
            return self.rows.tokens(own_rows(update))

        def fetch(begin: int, end: int) -> None:
            self.rows.fetch(np.concatenate([own_rows(update) for update in range(begin, end)]))

        if self.store.reads_ranges:
            return fetched_batches(read, fetch, first_update)
        return read_by_threads(read, first_update)


class LanguageModelTask(TextTask):
    """A decoder-only Transformer on plain text, measured in bits per byte."""

    next_commands = (
        "evaluate --workdir={workdir} --split=validation",
        "generate --workdir={workdir} --prompt='The '",
    )
    commands_of_trained = ("generate --workdir={workdir} --prompt='The '",)
    reads_texts = True

    @staticmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """One tokenizer for both sides, trained on the training split, and not saved yet."""
        source = open_documents(config.data, config.data_seed)
        tokenizer = train_text_tokenizer(config.tokenizer, source, config.data.train_split, config.data_seed)
        return TokenizerPair(tokenizer, tokenizer)

    @staticmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> Tokens:
        return batch_shape(rows, length, length).target

    @staticmethod
    def longest_row(config: ExperimentConfig) -> int:
        return int(config.batching.context_length)

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> LanguageModelObjective:
        return LanguageModelObjective(config, vocabularies[1], mesh)

    @staticmethod
    def decoding(
        config: ExperimentConfig, objective: LanguageModelObjective, length: int, mesh: Mesh
    ) -> DecodingProgram:
        longest = max(config.batching.context_length - config.decoding.max_new_tokens, 1)
        return generation_program(objective.model, config.decoding, length or longest, mesh)

    @cached_property
    def _compiled_loss(self) -> Callable[..., LossSums]:
        return jax.jit(self.objective.unsmoothed_loss, out_shardings=replicated(self.mesh))

    def activations(self, params: PyTree, batch: Tokens, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        return activations(self.objective.training_model(hyperparameters), params, batch, key=key)

    def training_data(self) -> LanguageModelData:
        split, batching, seed = self.config.data.train_split, self.config.batching, self.config.data_seed
        store = self._store(split)
        if store.corpora:
            times = times_an_epoch(tokens_of_corpora(store), self.config.data)
            rows, chosen = rows_of_mixture(store, batching, seed, times)
        else:
            rows, chosen, times = rows_of_store(store, batching, seed), None, {}
        plan = plan_rows(rows.num_rows, batching, seed, chosen)
        return LanguageModelData(split, store, rows, plan, batching.context_length, self.mesh, times)

    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> LanguageModelEvaluation:
        """Scores every token of a split, or of its first ``limit`` documents if above 0, without dropout or smoothing.

        ``split``: ``train``, ``validation``, ``test`` or another name in the data. Raises DataError when the split is empty or
        unknown.
        """
        name = self.config.data.split_name(split)
        store = self._store(name)
        if not store.corpora:
            return self._evaluate_store(params, store, name, limit)
        ranges = ranges_of(store.corpora, limit)
        parts = {
            corpus: self._evaluate_store(params, store, name, number, begin)
            for corpus, begin, number in ranges
            if number
        }
        return LanguageModelEvaluation.joined(parts)

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> NamedTexts:
        """The documents of a file, separated as in the training text.

        Raises ConfigError where references are given, DataError without a text.
        """
        if references:
            raise ConfigError("--references: a language model is scored on the text of --source itself; leave them out")
        path = Path(source).expanduser()
        if not path.is_file():
            raise DataError(f"--source: {source!r} is not a file; give a text, plain, .gz or .xz")
        texts = NamedTexts({"train": str(path), GIVEN: str(path)}, config.data.documents, config.data.held_out)
        if next(texts.documents(GIVEN), None) is None:
            raise DataError(f"--source: {source} is empty; give a text")
        return texts

    def evaluate_text(self, params: PyTree, text: NamedTexts, name: str) -> LanguageModelEvaluation:
        called = f"text-{name}-{text.fingerprint(GIVEN)[:8]}"
        return self._evaluate_store(params, self._open_store(text, GIVEN), called, 0)

    def score_texts(
        self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None = None
    ) -> list[TokenScores]:
        """The log-probability of every token of each text, a document; ``targets`` is ignored."""
        del targets
        length = self.config.batching.context_length
        return score_texts(self.objective.model, params, self.tokenizer, texts, length, self.mesh)

    def attention_of(self, params: PyTree, text: str, target: str | None = None) -> TextAttention:
        """All attention over a text; ``target`` is ignored. Raises DataError when the text exceeds the training context."""
        del target
        ids = ids_of_text(self.tokenizer, text, self.config.batching.context_length)
        tokens = Tokens.from_ids(np.asarray([ids], np.int32))
        maps = jax.device_get(jax.jit(partial(attention_maps, self.objective.model))(params, tokens))
        return TextAttention(text, None, weights_by_kind(maps, axes_of(self.tokenizer, ids)))

    @cached_property
    def generator(self) -> Generator:
        return Generator(self.objective.model, self.tokenizer, self.config, self.mesh)

    def _evaluate_store(
        self, params: PyTree, store: DocumentStore, name: str, limit: int, begin: int = 0
    ) -> LanguageModelEvaluation:
        batching = self.config.batching
        documents = min(limit, store.num_documents) if limit else store.num_documents
        stride = self.config.data.evaluation_stride or batching.context_length
        # The seed changes only in which rows pieces are packed.
        rows = rows_of_store(store, batching, 0, limit=documents, stride=stride, begin=begin)
        nll = correct = tokens = 0.0
        for sums in self._sums(params, rows):
            nll, correct, tokens = nll + float(sums.nll), correct + float(sums.correct), tokens + float(sums.tokens)
        return LanguageModelEvaluation(
            split=name,
            nll=nll,
            correct=correct,
            tokens=int(tokens),
            num_bytes=int(store.byte_offsets[begin + documents] - store.byte_offsets[begin]),
            documents=documents,
            context_length=batching.context_length,
            stride=stride,
        )

    def _sums(self, params: PyTree, rows: TextRows) -> Iterator[LossSums]:
        """The sums of every batch, on the host; each is read after the next batch was dispatched."""
        batching = self.config.batching
        # Memory that suffices for a training step suffices for its forward pass.
        positions = max(SCORING_TOKENS, batching.tokens_per_update // batching.accumulation_steps)
        rows_at_once = rows_of(batching.context_length, positions, row_groups(self.mesh))
        dispatched = []
        for start in range(0, rows.num_rows, rows_at_once):
            indices = np.arange(start, start + rows_at_once)
            indices = np.where(indices < rows.num_rows, indices, PADDING_ROW)
            batch = put_rows((rows.tokens(indices), rows.is_scored(indices)), self.mesh)
            dispatched.append(self._compiled_loss(params, *batch))
            if len(dispatched) > 1:
                yield jax.device_get(dispatched.pop(0))
        yield from map(jax.device_get, dispatched)
