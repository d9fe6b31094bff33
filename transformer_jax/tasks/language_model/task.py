"""Language modeling as a task: its training data, its objective, its evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ConfigError, ExperimentConfig, Hyperparameters
from transformer_jax.data.buckets import rows_of
from transformer_jax.data.documents import open_documents
from transformer_jax.data.sentence_pairs import DocumentSource
from transformer_jax.data.text_rows import PADDING_ROW, RowPlan, TextRows, plan_rows, rows_of_store
from transformer_jax.data.token_store import DocumentStore, open_document_store, unigram_entropy
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair, train_text_tokenizer
from transformer_jax.models.interface import activations
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.sequence_types import Tokens, batch_shape
from transformer_jax.tasks.language_model.evaluation import LanguageModelEvaluation
from transformer_jax.tasks.language_model.objective import LanguageModelObjective
from transformer_jax.tasks.protocol import DataReport
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import everywhere, parts_of_rows, put_rows, row_groups

SCORING_TOKENS = 4096


def new_text_tokenizer(config: ExperimentConfig) -> TokenizerPair:
    """Trained on the training split, and not saved yet; the same one for both sides, of which there is one."""
    source = open_documents(config.data, config.data_seed)
    tokenizer = train_text_tokenizer(config.tokenizer, source, config.data.train_split, config.data_seed)
    return TokenizerPair(tokenizer, tokenizer)


@dataclass(frozen=True)
class LanguageModelData:
    """The tokenized training split as rows of ``width`` tokens, and the assignment of rows to updates."""

    split: str
    store: DocumentStore
    rows: TextRows
    plan: RowPlan
    width: int
    mesh: Mesh

    @cached_property
    def report(self) -> DataReport:
        """Counts and padding."""
        store, plan = self.store, self.plan
        padding = 1 - store.num_tokens / (plan.updates_per_epoch * plan.rows_per_update * self.width)
        rows = {"rows": plan.num_rows, "updates_per_epoch": plan.updates_per_epoch, "padding_share": padding}
        text = (
            f"{self.split}: {store.num_documents:,} documents, {store.num_tokens:,} tokens\n"
            f"batches: {plan.updates_per_epoch:,} an epoch, {plan.rows_per_update} rows of {self.width} tokens each; "
            f"padding {padding:.1%}"
        )
        entropy = unigram_entropy(store.ids)
        return DataReport({"training": store.to_json(), "batches": rows, "unigram_entropy": entropy}, text)

    def batch_shapes(self, first_update: int) -> list[Tokens]:
        """The one shape of all batches, over all processes."""
        del first_update
        return [batch_shape(self.plan.rows_per_update, self.width, self.width).target]

    def require_sound(self) -> None:
        """Waits for the check of the whole token store; raises DataError where it is damaged."""
        self.store.check.finish()

    def batches(self, first_update: int) -> Iterator[Tokens]:
        """The batches of the updates after ``first_update``, forever; each process reads only its rows.

        Raises ConfigError, at once and not with the first batch, when the rows do not divide over the devices.
        """
        parts, count = parts_of_rows(self.mesh)
        rows = self.plan.rows_per_update
        if rows % count:
            problem = f"batches of {rows} rows do not divide into {count} parts for the devices"
            raise ConfigError(f"batching.row_multiple: {problem}; use a multiple of {count}")
        return self._read(first_update, parts, count)

    def _read(self, update: int, parts: tuple[int, ...], count: int) -> Iterator[Tokens]:
        while True:
            whole = self.plan.rows(update).reshape(count, -1)
            yield self.rows.tokens(whole[list(parts)].reshape(-1))
            update += 1


class LanguageModelTask(TextTask):
    """Data, model, loss and evaluation, made from the settings of a run and its tokenizer."""

    def __init__(self, config: ExperimentConfig, tokenizer: Tokenizer, mesh: Mesh) -> None:
        super().__init__(config, tokenizer, LanguageModelObjective(config, tokenizer.vocabulary_size, mesh), mesh)
        self._compiled_loss = jax.jit(self.objective.unsmoothed_loss, out_shardings=everywhere(mesh))

    def activations(self, params: PyTree, batch: Tokens, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """All module outputs of a training pass, to find the first non-finite one."""
        return activations(self.objective.training_model(hyperparameters.rates), params, batch, key=key)

    def training_data(self) -> LanguageModelData:
        """Tokenizes the training split, unless that was done before, and plans the rows."""
        split, batching, seed = self.config.data.train_split, self.config.batching, self.config.data_seed
        store = self._store(split)
        rows = rows_of_store(store, batching, seed)
        plan = plan_rows(rows.num_rows, batching, seed)
        return LanguageModelData(split, store, rows, plan, batching.context_length, self._mesh)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> LanguageModelEvaluation:
        """Scores every token of a split, or of its first ``limit`` documents if above 0, without dropout or smoothing.

        ``split`` is ``train``, ``validation``, ``test`` or a name that the data itself has. Raises DataError when the split is
        empty or unknown.
        """
        name = self.config.data.split_name(split)
        return self._evaluate_store(params, self._store(name), name, limit)

    def evaluate_documents(
        self, params: PyTree, source: DocumentSource, split: str, name: str
    ) -> LanguageModelEvaluation:
        """Scores every token of a split of another source; the result is called ``name``."""
        with first_goes_first():
            store = open_document_store(source, split, self.tokenizer, self.config.data.cache_directory)
        return self._evaluate_store(params, store, name, 0)

    def _evaluate_store(self, params: PyTree, store: DocumentStore, name: str, limit: int) -> LanguageModelEvaluation:
        batching = self.config.batching
        documents = min(limit, store.num_documents) if limit else store.num_documents
        stride = self.config.data.evaluation_stride or batching.context_length
        # The order in which pieces are packed changes nothing but the rows they are in.
        rows = rows_of_store(store, batching, 0, limit=documents, stride=stride)
        nll = correct = tokens = 0.0
        for sums in self._sums(params, rows):
            nll, correct, tokens = nll + float(sums.nll), correct + float(sums.correct), tokens + float(sums.tokens)
        return LanguageModelEvaluation(
            split=name,
            nll=nll,
            correct=correct,
            tokens=int(tokens),
            num_bytes=int(store.byte_offsets[documents]),
            documents=documents,
            context_length=batching.context_length,
            stride=stride,
        )

    def _sums(self, params: PyTree, rows: TextRows) -> Iterator[LossSums]:
        """The sums of every batch, on the host, each read when the next was dispatched."""
        batching = self.config.batching
        # What a training step can hold, its forward pass can.
        positions = max(SCORING_TOKENS, batching.tokens_per_update // batching.accumulation_steps)
        rows_at_once = rows_of(batching.context_length, positions, row_groups(self._mesh))
        dispatched = []
        for start in range(0, rows.num_rows, rows_at_once):
            places = np.arange(start, start + rows_at_once)
            indices = np.where(places < rows.num_rows, places, PADDING_ROW)
            batch = put_rows((rows.tokens(indices), rows.is_scored(indices)), self._mesh)
            dispatched.append(self._compiled_loss(params, *batch))
            if len(dispatched) > 1:
                yield jax.device_get(dispatched.pop(0))
        yield from map(jax.device_get, dispatched)
