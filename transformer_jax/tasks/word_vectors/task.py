"""Word vectors as a task: text as blocks, the objective, its evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import NUM_SPECIAL_IDS, Array, PyTree
from transformer_jax.config import DataError, ExperimentConfig, Hyperparameters
from transformer_jax.data.document_store import DocumentStore, train_text_tokenizer
from transformer_jax.data.documents import open_documents
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.listed import LowerWordTokenizer, WordTokenizer
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.tasks.protocol import DataReport
from transformer_jax.tasks.text_task import TextTask
from transformer_jax.tasks.word_vectors.evaluation import WordVectorEvaluation
from transformer_jax.tasks.word_vectors.frequencies import count_ids, counts_of_words
from transformer_jax.tasks.word_vectors.objective import WordVectorObjective
from transformer_jax.tasks.word_vectors.pair_blocks import PairBlocks, open_cooccurrences
from transformer_jax.tasks.word_vectors.text_blocks import TextBlocks
from transformer_jax.tasks.word_vectors.vector_tables import vectors_of
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import everywhere, parts_of_rows, put_rows
from transformer_jax.training.step import UpdateRule
from transformer_jax.word_vectors.evaluation import evaluate_vectors
from transformer_jax.word_vectors.test_sets import WordTestSets, read_test_sets

WORD_TOKENIZERS = {"word": WordTokenizer, "lower_word": LowerWordTokenizer}
VALIDATION_UPDATES = 4
"""A validation scores at most so many updates' worth of blocks."""


def new_word_tokenizer(config: ExperimentConfig) -> TokenizerPair:
    """Trained on the training split, and not saved yet: of words all of them count, not a sample.

    Raises DataError when there is no text, or no word occurs ``tokenizer.min_count`` times.
    """
    source, settings = open_documents(config.data, config.data_seed), config.tokenizer
    if settings.kind not in WORD_TOKENIZERS:
        tokenizer = train_text_tokenizer(settings, source, config.data.train_split, config.data_seed)
        return TokenizerPair(tokenizer, tokenizer)
    texts = (document.text for document in source.documents(config.data.train_split))
    words = WORD_TOKENIZERS[settings.kind].train(texts, settings.vocabulary_size, settings.min_count)
    if words.vocabulary_size == NUM_SPECIAL_IDS:
        raise DataError(
            f"data: no word of split {config.data.train_split!r} occurs {settings.min_count} times; lower tokenizer.min_count "
            "or give more text"
        )
    return TokenizerPair(words, words)


@dataclass(frozen=True)
class WordVectorData:
    """The tokenized training split, and the blocks that it is taken in."""

    split: str
    store: DocumentStore
    words: int
    blocks: TextBlocks | PairBlocks
    mesh: Mesh

    @property
    def report(self) -> DataReport:
        """Counts of the text and its blocks."""
        counts, line = self.blocks.report()
        store = self.store
        size = f"{store.num_documents:,} documents, {store.num_tokens:,} tokens, {self.words:,} words with vectors"
        content = {"training": store.to_json(), "batches": counts | {"words": self.words}}
        return DataReport(content, f"{self.split}: {size}\n{line}")

    def batch_shapes(self, first_update: int) -> list[PyTree]:
        """The one shape of all batches, over all processes."""
        del first_update
        return [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.blocks.block(0))]

    def batches(self, first_update: int) -> Iterator[PyTree]:
        """The batches of the updates after ``first_update``, forever; each process makes all rows and keeps its own."""
        self.store.check.finish()
        parts, count = parts_of_rows(self.mesh)
        while True:
            block = self.blocks.block(first_update)
            yield jax.tree.map(lambda rows: _parts(rows, parts, count), block)
            first_update += 1


class WordVectorTask(TextTask):
    """Data, objective and evaluation, made from the settings of a run and its tokenizer."""

    def __init__(self, config: ExperimentConfig, tokenizer: Tokenizer, mesh: Mesh) -> None:
        super().__init__(config, tokenizer, WordVectorObjective(config, tokenizer.vocabulary_size, mesh), mesh)
        self._compiled_loss = jax.jit(self.objective.loss, out_shardings=everywhere(mesh))

    def rule(self) -> UpdateRule:
        """What an update does, in place of a dense gradient."""
        return self.objective.rule()

    def activations(self, params: PyTree, batch: PyTree, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """The rows that a batch reads, for finding what is not finite."""
        del key, hyperparameters
        return self.objective.rows(params, batch)

    def training_data(self) -> WordVectorData:
        """Tokenizes the training split, unless that was done before, counts its words and plans the blocks."""
        split = self.config.data.train_split
        words = int(np.count_nonzero(self.counts))
        store = self._store(split)
        return WordVectorData(split, store, words, self._blocks(store), self._mesh)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> WordVectorEvaluation:
        """The loss on the first blocks of a split, subsampled and with negatives drawn as in training; and the test sets.

        Counts of another text are not the ones that GloVe fits: its loss is always that of pairs of the training split.
        ``limit`` is not used: what is scored is little. Raises DataError when the split is empty or unknown, or a test set
        cannot be read.
        """
        del limit
        name = self.config.data.split_name(split)
        store = self._store(name)
        blocks = self._blocks(store)
        sums = LossSums.zero()
        for update in range(min(VALIDATION_UPDATES, blocks.updates_per_epoch)):
            sums += jax.device_get(self._compiled_loss(params, put_rows(blocks.block(update), self._mesh)))
        examples = max(float(sums.tokens), 1.0)
        loss, accuracy = float(sums.loss) / examples, float(sums.correct) / examples
        return WordVectorEvaluation(name, loss, accuracy, int(sums.tokens), self._scores_of_test_sets(params))

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each id is in the training split, 0 for what gets no vector; int64 [V]."""
        store = self._store(self.config.data.train_split)
        return counts_of_words(count_ids(store, self.tokenizer.vocabulary_size), self.config.tokenizer.min_count)

    @cached_property
    def _test_sets(self) -> WordTestSets:
        """Raises DataError when a file of them cannot be read."""
        return read_test_sets([self.config.data.test_sets])

    def _scores_of_test_sets(self, params: PyTree) -> dict[str, float]:
        """By name, from -1 to 1, where ``data.test_sets`` names any."""
        if not self.config.data.test_sets:
            return {}
        vectors = vectors_of(jax.device_get(params), self.config, self.tokenizer)
        return evaluate_vectors(vectors, self._test_sets).headline()

    def _blocks(self, store: DocumentStore) -> TextBlocks | PairBlocks:
        config, model = self.config, self.config.model
        if model.kind == "glove":
            store, cache = self._store(config.data.train_split), config.data.cache_directory
            with first_goes_first():
                pairs = open_cooccurrences(store, self.identity, self.counts, model.window, model.memory_pairs, cache)
            return PairBlocks(pairs, self.tokenizer.vocabulary_size, config.batching, config.data_seed)
        return TextBlocks(store, self.counts, config.data.subsample, config.batching, config.model, config.data_seed)


def _parts(rows: np.ndarray, parts: tuple[int, ...], count: int) -> np.ndarray:
    whole = rows.reshape(count, -1, *rows.shape[1:])
    return whole[list(parts)].reshape(-1, *rows.shape[1:])
