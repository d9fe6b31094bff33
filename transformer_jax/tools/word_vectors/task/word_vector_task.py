"""The task of word vectors: blocks of text, objective, evaluation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import NUM_SPECIAL_IDS, PyTree
from transformer_jax.config import DataError, ExperimentConfig, MeshConfig, load_run_config, without_its_cache
from transformer_jax.data.documents import open_documents
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.listed import LowerWordTokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_text_tokenizer
from transformer_jax.files.checked_json import read_checked
from transformer_jax.run_directory.layout import ChosenRun, RunDirectory
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.tasks.task import DataReport, MeasuredSplit
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tools.word_vectors.keyed_vectors import KeyedVectors
from transformer_jax.tools.word_vectors.task.glove import PairBlock, PairBlocks, open_cooccurrences
from transformer_jax.tools.word_vectors.task.text_blocks import TextBlocks, counts_of_words
from transformer_jax.tools.word_vectors.task.word2vec import TextBlock
from transformer_jax.tools.word_vectors.task.word_vector_objective import WordVectorObjective, vectors_of
from transformer_jax.tools.word_vectors.vector_evaluation import WordTestSet, evaluate_vectors, read_test_sets
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import parts_of_rows, put_rows, replicated

WITHOUT_VECTOR = "ids_without_vector"
"""Key of ``data.json``."""
VALIDATION_UPDATES = 4
"""A validation scores the blocks of at most this number of updates."""


class WordVectorEvaluation(MeasuredSplit):
    """Loss and accuracy of a split per pair of words (CBOW: per word), and scores of test sets."""

    def rows(self) -> list[tuple[str, str, str]]:
        test_sets = dict(self.metrics)
        loss, accuracy = test_sets.pop("loss"), test_sets.pop("accuracy")
        return [
            ("split", self.split, self.basis),
            ("loss", f"{loss:.4f}", "nats per example with negatives, or weighted squares of GloVe"),
            ("accuracy", f"{accuracy:.2%}", "examples with the right sign, or within a factor of 2 with GloVe"),
            *((name, f"{100 * value:.2f}", "test set score, times 100") for name, value in test_sets.items()),
        ]


@dataclass(frozen=True)
class WordVectorData:
    """The tokenized training split, and its blocks."""

    split: str
    store: DocumentStore
    blocks: TextBlocks | PairBlocks
    without: Sequence[int]
    mesh: Mesh

    @property
    def report(self) -> DataReport:
        counts, line = self.blocks.report()
        store = self.store
        size = f"{store.num_documents:,} documents, {store.num_tokens:,} tokens"
        without = f", {len(self.without):,} of the vocabulary are too rare for a vector" if self.without else ""
        content = {"training": store.to_json(), "batches": counts, WITHOUT_VECTOR: list(self.without)}
        return DataReport(content, f"{self.split}: {size}{without}\n{line}")

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """Return the one shape of all batches, over all processes."""
        del first_update
        return [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.blocks.block(0))]

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """Yield the batches after ``first_update`` forever. A process keeps its rows."""
        # Imports TensorFlow, which only input pipelines need.
        from transformer_jax.data.pipeline import prefetched

        parts, count = parts_of_rows(self.mesh)

        def of_process(rows: np.ndarray) -> np.ndarray:
            groups = rows.reshape(count, -1, *rows.shape[1:])
            return groups[list(parts)].reshape(-1, *rows.shape[1:])

        return prefetched(lambda update: jax.tree.map(of_process, self.blocks.block(update)), first_update)


class WordVectorTask(TextTask):
    """Data, objective and evaluation of word vectors."""

    commands = ("vectors neighbors WORD {run}",)

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        super().__init__(config, tokenizers, mesh, objective)
        self._blocks_of_splits: dict[str, TextBlocks | PairBlocks] = {}
        self._compiled_loss = jax.jit(self.objective.loss, out_shardings=replicated(mesh))

    @staticmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Train the tokenizer. A vocabulary of words counts the whole split instead of a sample."""
        source = open_documents(config.data, config.data_seed)
        settings, split = config.tokenizer, config.data.train_split
        if settings.kind == LowerWordTokenizer.kind:
            texts = (document.text for document in source.documents(split))
            tokenizer: Tokenizer = LowerWordTokenizer.train(texts, settings.vocabulary_size, settings.min_count)
            if tokenizer.vocabulary_size == NUM_SPECIAL_IDS:
                problem = f"no word of {split!r} occurs {settings.min_count} times; lower tokenizer.min_count"
                raise DataError(f"data: {problem}")
        else:
            tokenizer = train_text_tokenizer(settings, source, split, config.data_seed)
        return TokenizerPair(tokenizer, tokenizer)

    @staticmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
        """Return the shape of a batch of ``rows`` rows of ``length`` words."""
        model = config.model

        def of(width: int, dtype: type = np.int32) -> Any:
            return jax.ShapeDtypeStruct((rows, width), dtype)

        if model.kind == "glove":
            return PairBlock(of(length), of(length), of(length, np.float32))
        return TextBlock(of(length + 2 * model.window), of(length), of(model.shared_negatives))

    @staticmethod
    def longest_row(config: ExperimentConfig) -> int:
        return int(config.batching.row_length)

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> WordVectorObjective:
        return WordVectorObjective(config, vocabularies[0], mesh)

    def training_data(self) -> WordVectorData:
        """Open or tokenize the training split, count its words and plan the blocks."""
        split = self.config.data.train_split
        return WordVectorData(split, self._store(split), self._blocks(split), self.ids_without_vector, self.mesh)

    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> WordVectorEvaluation:
        """Score the first blocks of a split, with subsampling and negatives, and the test sets.

        GloVe fits counts of the training text, and is scored on the training split. ``limit`` is
        not used.
        """
        del limit
        name = self.config.data.split_name(split)
        name = self.config.data.train_split if self.config.model.kind == "glove" else name
        blocks = self._blocks(name)
        sums = LossSums.zero()
        for update in range(min(VALIDATION_UPDATES, blocks.updates_per_epoch)):
            sums += jax.device_get(self._compiled_loss(params, put_rows(blocks.block(update), self.mesh)))
        examples = max(float(sums.tokens), 1.0)
        metrics = {"loss": float(sums.loss) / examples, "accuracy": float(sums.correct) / examples}
        return WordVectorEvaluation(name, metrics | self._scores_of_test_sets(params), int(sums.tokens))

    @cached_property
    def counts(self) -> np.ndarray:
        """Counts of ids in the training split, int64 [V], 0 for ids without a vector."""
        store = self._store(self.config.data.train_split)
        return counts_of_words(store, self.tokenizer.vocabulary_size, self.config.tokenizer.min_count)

    @property
    def ids_without_vector(self) -> list[int]:
        """The ids, except special ones, that are missing or too rare in the training split."""
        return [NUM_SPECIAL_IDS + int(number) for number in np.flatnonzero(self.counts[NUM_SPECIAL_IDS:] == 0)]

    @cached_property
    def _test_sets(self) -> list[WordTestSet]:
        return read_test_sets([self.config.data.test_sets])

    def _scores_of_test_sets(self, params: PyTree) -> dict[str, float]:
        """Return scores by name, from -1 to 1, if there are ``data.test_sets``."""
        if not self.config.data.test_sets:
            return {}
        vectors = vectors_of(params, self.config, self.tokenizer, self.ids_without_vector)
        return evaluate_vectors(vectors, self._test_sets).headline()

    def _blocks(self, split: str) -> TextBlocks | PairBlocks:
        """Return the blocks of a split, cached since a table of negatives takes seconds."""
        if split in self._blocks_of_splits:
            return self._blocks_of_splits[split]
        store, data, batching, model = self._store(split), self.config.data, self.config.batching, self.config.model
        blocks: TextBlocks | PairBlocks
        if model.kind == "glove":
            with first_goes_first("tokenized data"):
                pairs = open_cooccurrences(store, self.identity, self.counts, model, data.cache_directory)
            blocks = PairBlocks(pairs, self.tokenizer.vocabulary_size, batching, self.config.data_seed)
        else:
            blocks = TextBlocks(store, self.counts, data.subsample, batching, model, self.config.data_seed)
        self._blocks_of_splits[split] = blocks
        return blocks


def vectors_of_run(workdir: str | Path, checkpoint: str) -> KeyedVectors:
    """Return the vectors of a checkpoint of a run of word vectors, restored on any devices."""
    run = RunDirectory(workdir)
    run.require_run()
    config = replace(without_its_cache(load_run_config(run.path)), mesh=MeshConfig())
    trained = open_trained(ChosenRun(str(workdir), config, checkpoint), task="word_vectors")
    return vectors_of(trained.params, config, trained.tokenizers.source, _ids_without_vector(run))


def _ids_without_vector(run: RunDirectory) -> tuple[int, ...]:
    """Return the ids without a vector that the run recorded when it started."""
    report = read_checked(run.data_report) or {}
    try:
        return tuple(map(int, report.get(WITHOUT_VECTOR, ())))
    except (ValueError, TypeError):
        raise DataError(f"{run.data_report}: not the report on the data of a run") from None
