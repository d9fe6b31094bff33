"""Language modeling: model and loss, training data, evaluation, scores and attention of text."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import EOS_ID, AnyArray, Array, Float, PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.batches import SCORING_TOKENS
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.documents import NamedTexts, open_documents, require_plain_text
from transformer_jax.data.mixed_corpora import describe_shares, parts_of, ranges_of, times_an_epoch
from transformer_jax.data.pipeline import read_by_threads
from transformer_jax.data.store_statistics import unigram_entropy
from transformer_jax.data.text_rows import (
    PADDING_ROW,
    RowPlan,
    TextRows,
    plan_rows,
    rows_of_mixture,
    rows_of_store,
    tokens_of_corpora,
)
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import train_text_tokenizer
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.decoding.source_batches import source_batches
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.models.devices import devices_of
from transformer_jax.models.interface import Module, call
from transformer_jax.sequence_types import Tokens, batch_shape
from transformer_jax.tasks.language_model.generator import Generator, generation_program, tokens_before_document
from transformer_jax.tasks.objective import Objective
from transformer_jax.tasks.task import DataReport, PrintedEvaluation, share_of
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.tasks.texts import READING_TOKENS, Attention, TokenScores, attention_layers, token_log_probs
from transformer_jax.training.losses import LossSums, perplexity
from transformer_jax.training.sharding import parts_of_rows, put_rows, replicated, row_groups

# Training documents in which signs of files from Windows are looked for.
SAMPLED_DOCUMENTS = 1000


@dataclass(frozen=True, repr=False)
class LanguageModelEvaluation(PrintedEvaluation):
    """Sums over a split, or its first ``documents``, divided once, at the end.

    Attributes:
        nll: Negative log-likelihood in nats of all ``tokens``, with the EOS of every document.
        num_bytes: UTF-8 bytes of the raw text, with line feeds.
        context_length: Maximum number of tokens in a window.
        stride: How many of them are scored.
        corpora: Metrics by corpus of a mixture.
        text: Digest of the whole split.
    """

    split: str
    nll: float
    correct: float
    tokens: int
    num_bytes: int
    documents: int
    context_length: int
    stride: int
    split_documents: int
    corpora: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    text: str = ""

    @classmethod
    def joined(cls, parts: "Mapping[str, LanguageModelEvaluation]") -> "LanguageModelEvaluation":
        """Return the sums over the corpora of a mixture, with loss and bits per byte by corpus."""
        counted = ("nll", "correct", "tokens", "num_bytes", "documents")
        sums: dict[str, Any] = {name: sum(getattr(part, name) for part in parts.values()) for name in counted}
        corpora = {name: {"loss": part.loss, "bits_per_byte": part.bits_per_byte} for name, part in parts.items()}
        return replace(next(iter(parts.values())), **sums, corpora=corpora)

    @property
    def loss(self) -> float:
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
            **{
                f"{name}_{corpus}": value for corpus, metrics in self.corpora.items() for name, value in metrics.items()
            },
        }

    @property
    def basis(self) -> str:
        return share_of(self.documents, self.split_documents, "documents")

    def to_json(self) -> dict[str, object]:
        return asdict(self) | self.metrics

    def rows(self) -> list[tuple[str, str, str]]:
        overlap = "no overlap" if self.stride == self.context_length else f"{self.stride} of them new"
        return [
            ("split", self.split, f"{self.basis}, {self.num_bytes:,} bytes, {self.tokens:,} tokens"),
            ("bits per byte", f"{self.bits_per_byte:.4f}", "of the raw text, line feeds included"),
            ("loss", f"{self.loss:.4f}", "nats per token, no label smoothing"),
            ("perplexity", f"{self.metrics['perplexity']:.3f}", "per token"),
            ("accuracy", f"{self.metrics['accuracy']:.2%}", "of tokens that were the most probable"),
            ("context", f"{self.context_length:,}", f"tokens, {overlap}"),
            *(
                (f"bits per byte of {corpus}", f"{metrics['bits_per_byte']:.4f}", "")
                for corpus, metrics in self.corpora.items()
            ),
        ]


@dataclass(frozen=True)
class LanguageModelData:
    """The tokenized training split as rows of ``width`` tokens, and the plan of updates.

    ``warnings``: faults in the text.
    """

    split: str
    store: DocumentStore
    rows: TextRows
    plan: RowPlan
    width: int
    mesh: Mesh
    times: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @cached_property
    def report(self) -> DataReport:
        store, plan = self.store, self.plan
        sizes = tokens_of_corpora(store)
        mixture, lines = describe_shares(sizes, self.times, "tokens")
        total = sum(self.times[name] * tokens for name, tokens in sizes.items()) or store.num_tokens
        padding = max(1 - total / (plan.updates_per_epoch * plan.rows_per_update * self.width), 0.0)
        text = (
            f"{self.split}: {store.num_documents:,} documents, {store.num_tokens:,} tokens\n"
            f"batches: {plan.updates_per_epoch:,} an epoch, {plan.rows_per_update} rows of {self.width} tokens each; "
            f"padding {padding:.1%}"
        )
        content = {
            "training": store.to_json(),
            "batches": {"rows": plan.num_rows, "updates_per_epoch": plan.updates_per_epoch, "padding_share": padding},
            "unigram_entropy": unigram_entropy(store.ids, sizes, self.times),
            "warnings": self.warnings,
        }
        return DataReport(content | mixture, "\n".join([text, *lines, *self.warnings]))

    def batch_shapes(self, first_update: int) -> list[Tokens]:
        del first_update
        return [batch_shape(self.plan.rows_per_update, self.width, self.width).target]

    def batches(self, first_update: int) -> Iterator[Tokens]:
        parts, count = parts_of_rows(self.mesh)

        def read(update: int) -> Tokens:
            rows = self.plan.rows(update).reshape(count, -1)[list(parts)].reshape(-1)
            return self.rows.tokens(rows)

        return read_by_threads(read, first_update)


class LanguageModelObjective(Objective):
    """A model for a vocabulary of this size, on the devices of ``mesh``, and its loss.

    ``model`` decodes: it takes prompts too, which are padded on the left.
    """

    def __init__(self, config: ExperimentConfig, vocabulary: int, mesh: Mesh) -> None:
        build = partial(build_decoder_only, config.model, vocabulary)
        super().__init__(config, mesh, build, init_decoder_only)
        self.model = build(devices_of(config.model, mesh), parts=config.parts)
        self._model_of_rows = build(self._devices, parts=config.parts)

    def unsmoothed_loss(self, params: PyTree, batch: Tokens, is_scored: AnyArray) -> LossSums:
        """Return the cross entropy of the scored tokens [B, T], without dropout or smoothing."""
        factors = call(self._model_of_rows, params, "factors", batch, train=False)
        return self.unsmoothed_cross_entropy(factors, batch.ids, is_scored, self.training_precision)


def window_starts(num_tokens: int, length: int) -> range:
    """Return the first tokens of windows of ``length`` tokens, which overlap by half."""
    stride = length - length // 2
    return range(0, max(num_tokens - length, 0) + stride, stride)


def log_probs_of(model: Module, params: PyTree, tokens: Tokens) -> Float[Array, "B T"]:
    return token_log_probs(call(model, params, "__call__", tokens, train=False), tokens.ids)


def ids_of_text(tokenizer: Tokenizer, text: str, limit: int, name: str = "the text") -> list[int]:
    """Return the tokens of a text and EOS, at most ``limit``, or raise DataError."""
    ids = [*tokenizer.encode(text), EOS_ID]
    if len(ids) > limit:
        problem = f"{len(ids) - 1} tokens and EOS exceed the context of {limit} tokens that the model was trained on"
        raise DataError(f"{name}: {problem}")
    return ids


def axes_of(tokenizer: Tokenizer, ids: list[int]) -> dict[str, list[str]]:
    """Return the pieces of a text that ends with EOS, and the pieces of the decoder input."""
    pieces = [*tokenizer.shown(ids[:-1]), "</s>"]
    return {"target": pieces, "input": ["<s>", *pieces[:-1]]}


class LanguageModelTask(TextTask):
    """A decoder-only Transformer on plain text, measured in bits per byte."""

    commands = ("generate {run} --prompt='The '",)
    has_targets = needs_tensorflow = False

    @staticmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Train one tokenizer for both sides on the training split."""
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
    def _log_probs(self) -> Callable[[PyTree, Tokens], Array]:
        return jax.jit(partial(log_probs_of, self.objective.model), out_shardings=replicated(self.mesh))

    @cached_property
    def _compiled_loss(self) -> Callable[..., LossSums]:
        return jax.jit(self.objective.unsmoothed_loss, out_shardings=replicated(self.mesh))

    def training_data(self) -> LanguageModelData:
        split, batching, seed = self.config.data.train_split, self.config.batching, self.config.data_seed
        store = self._store(split)
        if store.corpora:
            times = times_an_epoch(tokens_of_corpora(store), self.config.data)
            rows, epoch_rows = rows_of_mixture(store, batching, seed, times)
        else:
            rows, epoch_rows, times = rows_of_store(store, batching, seed), None, {}
        plan = plan_rows(rows.num_rows, batching, seed, epoch_rows)
        return LanguageModelData(split, store, rows, plan, batching.context_length, self.mesh, times, self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        """Warn of carriage returns and a byte order mark in the first training documents."""
        data, warnings = self.config.data, []
        if data.source == "grammar" or data.store or jax.process_index():
            return ()
        for name, part in parts_of(self.source, data.train_split).items():
            texts = [document.text for document in islice(part.documents(data.train_split), SAMPLED_DOCUMENTS)]
            signs = ["carriage returns at ends of lines"] * any(text.endswith("\r") for text in texts)
            signs += ["a byte order mark"] * any(text.startswith("\ufeff") for text in texts[:1])
            problem = "which the model learns, but score and generate --prompts remove; convert the text (dos2unix)"
            text = f"WARNING: the training text{f' of {name}' * bool(name)} has {' and '.join(signs)}, {problem}"
            warnings += [text] * bool(signs)
        return tuple(warnings)

    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> LanguageModelEvaluation:
        """Score every token of a split, or of its first ``limit`` documents if above 0.

        Without dropout or smoothing. Raises DataError if the split is empty or does not exist.
        """
        name = self.config.data.split_name(split)
        store = self._store(name)
        if not store.corpora:
            return self._evaluate_store(params, store, name, limit, text=self._text(name))
        parts = {
            corpus: self._evaluate_store(params, store, name, number, begin, self._text(name))
            for corpus, begin, number in ranges_of(store.corpora, limit)
            if number
        }
        return LanguageModelEvaluation.joined(parts)

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> NamedTexts:
        """Return the documents of a file, separated as in the training text.

        Raises ConfigError for references, DataError without a text.
        """
        if references:
            problem = "a language model is scored on the text of --source itself"
            raise ConfigError("--references", problem, "leave them out")
        path = Path(source).expanduser()
        if not path.is_file():
            raise DataError(f"--source: {source!r} is not a file; give a text, plain, .gz or .xz")
        require_plain_text(path, "--source")
        texts = NamedTexts({"train": str(path), "test": str(path)}, config.data.documents, config.data.held_out)
        if next(texts.documents("test"), None) is None:
            raise DataError(f"--source: {source} is empty; give a text")
        return texts

    def evaluate_text(self, params: PyTree, text: NamedTexts, name: str) -> LanguageModelEvaluation:
        digest = text.fingerprint("test")
        return self._evaluate_store(params, self._open_store(text, "test"), f"text-{name}-{digest[:8]}", 0, text=digest)

    def score_texts(self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None) -> list[TokenScores]:
        """Return the log-probability of every token of texts, documents that end with EOS.

        With ``batching.kind=split`` a text begins after the EOS of another, as nearly all documents
        in training. A text longer than the context is scored in windows that overlap by half.
        ``targets`` is ignored.
        """
        del targets
        length, mesh, before = self.config.batching.context_length, self.mesh, tokens_before_document(self.config)
        encoded = [[*before, *ids, EOS_ID] for ids in self.tokenizer.encode_batch(texts)]
        windows = [(text, start) for text, ids in enumerate(encoded) for start in window_starts(len(ids), length)]
        rows = [encoded[text][start : start + length] for text, start in windows]
        of_texts = [np.zeros(len(ids), np.float32) for ids in encoded]
        for batch in source_batches(rows, batch_tokens=READING_TOKENS, row_multiple=row_groups(mesh)):
            scored = jax.device_get(self._log_probs(params, put_rows(Tokens.from_ids(batch.ids[:, :length]), mesh)))
            for index, log_probs in zip(batch.indices, scored, strict=False):
                (text, start), end = windows[index], len(rows[index])
                first_new = length // 2 if start else 0
                of_texts[text][start + first_new : start + end] = log_probs[first_new:end]
        pieces_of = self.tokenizer.shown
        return [
            TokenScores([*pieces_of(ids[len(before) : -1]), "</s>"], log_probs[len(before) :].tolist())
            for ids, log_probs in zip(encoded, of_texts, strict=True)
        ]

    def attention_of(self, params: PyTree, text: str, target: str | None = None) -> Attention:
        """Return all attention over a text, or raise DataError if it is longer than in training."""
        del target
        ids = ids_of_text(self.tokenizer, text, self.config.batching.context_length)
        layers = attention_layers(self.objective.model, params, [ids], axes_of(self.tokenizer, ids))
        return Attention(text, None, layers)

    @cached_property
    def generator(self) -> Generator:
        return Generator(self.objective.model, self.tokenizer, self.config, self.mesh)

    def _evaluate_store(
        self, params: PyTree, store: DocumentStore, name: str, limit: int, begin: int = 0, text: str = ""
    ) -> LanguageModelEvaluation:
        batching = self.config.batching
        documents = min(limit, store.num_documents) if limit else store.num_documents
        stride = self.config.data.evaluation_stride or batching.context_length
        # The seed changes only in which rows pieces are packed.
        rows = rows_of_store(store, batching, 0, limit=documents, stride=stride, begin=begin)
        sums = list(self._sums(params, rows))
        nll, correct, tokens = (
            sum(float(getattr(part, name)) for part in sums) for name in ("nll", "correct", "tokens")
        )
        return LanguageModelEvaluation(
            split=name,
            nll=nll,
            correct=correct,
            tokens=int(tokens),
            num_bytes=int(store.byte_offsets[begin + documents] - store.byte_offsets[begin]),
            documents=documents,
            context_length=batching.context_length,
            stride=stride,
            split_documents=store.num_documents,
            text=text,
        )

    def _sums(self, params: PyTree, rows: TextRows) -> Iterator[LossSums]:
        """Yield the sums of every batch, read after the next batch was dispatched."""
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
