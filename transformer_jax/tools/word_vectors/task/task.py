"""Word vectors as a task: text as blocks, the objective, the evaluation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, PyTree
from transformer_jax.config import DataError, ExperimentConfig, Hyperparameters
from transformer_jax.data.documents import open_documents
from transformer_jax.data.token_store import DocumentStore
from transformer_jax.data.tokenizers import TokenizerPair, train_text_tokenizer
from transformer_jax.data.tokenizers.listed import LowerWordTokenizer, WordTokenizer
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.tasks.sizing import Sizing, plans_text
from transformer_jax.tasks.task import DataReport
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.tools.word_vectors.evaluation import WordTestSets, evaluate_vectors, read_test_sets
from transformer_jax.tools.word_vectors.task.glove import PairBlocks, open_cooccurrences
from transformer_jax.tools.word_vectors.task.objective import WordVectorObjective, block_shape, vectors_of
from transformer_jax.tools.word_vectors.task.sizing import WORD_VECTOR_KEYS, plan_word_vectors
from transformer_jax.tools.word_vectors.task.text_blocks import TextBlocks, counts_of_words
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import parts_of_rows, put_rows, replicated
from transformer_jax.training.step import UpdateRule

WORD_TOKENIZERS = {"word": WordTokenizer, "lower_word": LowerWordTokenizer}
WITHOUT_VECTOR = "ids_without_vector"
"""Key of ``data.json``."""
VALIDATION_UPDATES = 4
"""A validation scores at most the blocks of this number of updates."""


def new_word_tokenizer(config: ExperimentConfig) -> TokenizerPair:
    """Trained on the training split, not saved yet; a vocabulary of words counts the whole split, not a sample.

    Raises DataError when there is no text, or no word occurs ``tokenizer.min_count`` times.
    """
    source, settings = open_documents(config.data, config.data_seed), config.tokenizer
    if settings.kind not in WORD_TOKENIZERS:
        tokenizer = train_text_tokenizer(settings, source, config.data.train_split, config.data_seed)
        return TokenizerPair(tokenizer, tokenizer)
    texts = (document.text for document in source.documents(config.data.train_split))
    words = WORD_TOKENIZERS[settings.kind].train(texts, settings.vocabulary_size, settings.min_count)
    if words.vocabulary_size == NUM_SPECIAL_IDS:
        split = config.data.train_split
        if next(iter(source.documents(split)), None) is None:
            raise DataError(f"data: the split {split!r} has no text")
        raise DataError(f"data: no word of {split!r} occurs {settings.min_count} times; lower tokenizer.min_count")
    return TokenizerPair(words, words)


@dataclass(frozen=True)
class WordVectorEvaluation:
    """The loss of a split, per pair of words (CBOW: per word), and the scores of the test sets, if any.

    ``accuracy``: share of examples whose score has the right sign. ``test_sets``: by name, accuracies from 0 to 1,
    correlations from -1 to 1.
    """

    split: str
    loss: float
    accuracy: float
    num_examples: int
    test_sets: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers to log."""
        return {"loss": self.loss, "accuracy": self.accuracy, **self.test_sets}

    @property
    def outputs(self) -> None:
        """Nothing is generated."""

    @property
    def summary(self) -> str:
        found = f", analogies {100 * self.test_sets['analogies']:.2f} %" if "analogies" in self.test_sets else ""
        return f"loss {self.loss:.4f}{found}"

    def to_json(self) -> dict[str, object]:
        """Counts and metrics for ``json.dumps``; a number that is not finite becomes null."""
        fields: dict[str, object] = {"split": self.split, "examples": self.num_examples}
        return fields | {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of every line of the table."""
        return [
            ("split", self.split, f"{self.num_examples:,} examples"),
            ("loss", f"{self.loss:.4f}", "nats per example, negatives included; GloVe: weighted squares"),
            (
                "accuracy",
                f"{self.accuracy:.2%}",
                "examples whose score has the right sign; GloVe: within a factor of 2",
            ),
            *((name, f"{100 * value:.2f}", "test set score, times 100") for name, value in self.test_sets.items()),
        ]

    def examples(self, count: int) -> str:
        del count
        return ""


@dataclass(frozen=True)
class WordVectorData:
    """The tokenized training split, and the blocks that it is taken in."""

    split: str
    store: DocumentStore
    blocks: TextBlocks | PairBlocks
    without: Sequence[int]
    mesh: Mesh

    @property
    def report(self) -> DataReport:
        """Counts of the text and its blocks."""
        counts, line = self.blocks.report()
        store = self.store
        size = f"{store.num_documents:,} documents, {store.num_tokens:,} tokens"
        without = f", {len(self.without):,} of the vocabulary are too rare for a vector" if self.without else ""
        content = {"training": store.to_json(), "batches": counts, WITHOUT_VECTOR: list(self.without)}
        return DataReport(content, f"{self.split}: {size}{without}\n{line}")

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """The shape of all batches, over all processes."""
        del first_update
        return [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.blocks.block(0))]

    def require_sound(self) -> None:
        self.store.check.finish()

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """The batches of the updates after ``first_update``, forever; each process makes all rows and keeps its own."""
        # Imported here because it opens the door to TensorFlow, which only feeding data needs.
        from transformer_jax.data.pipeline import prefetched

        parts, count = parts_of_rows(self.mesh)

        def read(update: int) -> PyTree:
            return jax.tree.map(lambda rows: _parts(rows, parts, count), self.blocks.block(update))

        return prefetched(read, first_update)


class WordVectorTask(TextTask):
    """Data, objective and evaluation, made from the settings of a run and its tokenizer."""

    next_commands = (
        "evaluate --workdir={workdir} --split=validation",
        "vectors neighbors WORD --workdir={workdir}",
    )
    commands_of_trained = ("vectors neighbors WORD --workdir={workdir}",)

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        super().__init__(config, tokenizers, mesh, objective)
        self._blocks_of_splits: dict[str, TextBlocks | PairBlocks] = {}
        self._compiled_loss = jax.jit(self.objective.loss, out_shardings=replicated(mesh))

    @staticmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Trained on the training split, and not saved yet; raises DataError as ``new_word_tokenizer`` does."""
        return new_word_tokenizer(config)

    @staticmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> PyTree:
        """The shape of a batch of ``rows`` rows of ``length`` words; raises ConfigError as ``block_shape`` does."""
        return block_shape(config, rows, length)

    @staticmethod
    def longest_row(config: ExperimentConfig) -> int:
        return int(config.batching.row_length)

    @staticmethod
    def new_objective(config: ExperimentConfig, vocabularies: tuple[int, int], mesh: Mesh) -> WordVectorObjective:
        return WordVectorObjective(config, vocabularies[0], mesh)

    @staticmethod
    def update_rule(objective: WordVectorObjective) -> UpdateRule:
        """The update of the rows that a block reads, in place of a dense gradient."""
        return objective.rule()

    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """The rows that a batch reads, to find values that are not finite."""
        del key, hyperparameters
        return self.objective.rows(params, batch)

    def training_data(self) -> WordVectorData:
        """Tokenizes the training split, unless that was done before, counts its words and plans the blocks."""
        split = self.config.data.train_split
        return WordVectorData(split, self._store(split), self._blocks(split), self.ids_without_vector, self.mesh)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> WordVectorEvaluation:
        """The loss on the first blocks of a split, with subsampling and negatives as in training, and the test sets.

        GloVe is always scored on the training split, and the result says so. ``limit`` is not used. Raises DataError when
        the split is empty or unknown, or a test set cannot be read.
        """
        del limit
        name = self.config.data.split_name(split)
        # GloVe fits the counts of the training text.
        name = self.config.data.train_split if self.config.model.kind == "glove" else name
        blocks = self._blocks(name)
        sums = LossSums.zero()
        for update in range(min(VALIDATION_UPDATES, blocks.updates_per_epoch)):
            sums += jax.device_get(self._compiled_loss(params, put_rows(blocks.block(update), self.mesh)))
        examples = max(float(sums.tokens), 1.0)
        loss, accuracy = float(sums.loss) / examples, float(sums.correct) / examples
        return WordVectorEvaluation(name, loss, accuracy, int(sums.tokens), self._scores_of_test_sets(params))

    @cached_property
    def counts(self) -> np.ndarray:
        """Count of each id in the training split, 0 for ids without a vector; int64 [V]."""
        store = self._store(self.config.data.train_split)
        return counts_of_words(store, self.tokenizer.vocabulary_size, self.config.tokenizer.min_count)

    @property
    def ids_without_vector(self) -> list[int]:
        """The ids of the vocabulary that the training split does not have, or too rarely; without the special ids."""
        return [NUM_SPECIAL_IDS + int(number) for number in np.flatnonzero(self.counts[NUM_SPECIAL_IDS:] == 0)]

    @cached_property
    def _test_sets(self) -> WordTestSets:
        return read_test_sets([self.config.data.test_sets])

    def _scores_of_test_sets(self, params: PyTree) -> dict[str, float]:
        """By name, from -1 to 1, where ``data.test_sets`` names any."""
        if not self.config.data.test_sets:
            return {}
        vectors = vectors_of(params, self.config, self.tokenizer, self.ids_without_vector)
        return evaluate_vectors(vectors, self._test_sets).headline()

    def _blocks(self, split: str) -> TextBlocks | PairBlocks:
        """Made once for each split: the Huffman tree of a large vocabulary takes seconds."""
        if split not in self._blocks_of_splits:
            self._blocks_of_splits[split] = self._new_blocks(self._store(split))
        return self._blocks_of_splits[split]

    def _new_blocks(self, store: DocumentStore) -> TextBlocks | PairBlocks:
        config, model = self.config, self.config.model
        if model.kind == "glove":
            cache = config.data.cache_directory
            with first_goes_first():
                pairs = open_cooccurrences(store, self.identity, self.counts, model.window, model.memory_pairs, cache)
            return PairBlocks(pairs, self.tokenizer.vocabulary_size, config.batching, config.data_seed)
        return TextBlocks(store, self.counts, config.data.subsample, config.batching, config.model, config.data_seed)


def _parts(rows: np.ndarray, parts: tuple[int, ...], count: int) -> np.ndarray:
    whole = rows.reshape(count, -1, *rows.shape[1:])
    return whole[list(parts)].reshape(-1, *rows.shape[1:])


SIZING = Sizing("word_vectors:text", WORD_VECTOR_KEYS, ("skip_gram", "cbow"), plans_text(plan_word_vectors))
"""How ``--budget`` sizes runs that learn word vectors."""
