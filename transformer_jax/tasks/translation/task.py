"""Translation as a task: its training data, its objective, its evaluator."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import ExperimentConfig, Hyperparameters
from transformer_jax.data.batch_plan import BatchPlan, plan_batches
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import sample_of
from transformer_jax.data.line_shift import line_shift
from transformer_jax.data.token_store import TokenStore, open_token_store, unigram_entropy
from transformer_jax.data.tokenizers import TokenizerPair, too_many_pieces
from transformer_jax.models.interface import activations
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.sequence_types import Batch, batch_shape
from transformer_jax.tasks.protocol import DataReport
from transformer_jax.tasks.translation.evaluator import Evaluator, TranslationEvaluation
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.source_use import distinct_share, first_pairs, sharpest_entropy
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import everywhere, parts_of_rows, put_rows, row_groups

MEASURED_PAIRS = 1000


@dataclass(frozen=True)
class TranslationData:
    """The training split, tokenized and filtered, and the assignment of pairs to updates; prefetches ``prefetch`` batches.

    ``warnings``: what is wrong with the text.
    """

    store: TokenStore
    plan: BatchPlan
    mesh: Mesh
    prefetch: int
    warnings: tuple[str, ...] = ()

    @cached_property
    def report(self) -> DataReport:
        """Lengths, coverage of the vocabulary, and padding."""
        statistics = self.store.statistics
        content: dict[str, object] = {"training": asdict(statistics), "batches": self.plan.to_json()}
        content |= {"unigram_entropy": unigram_entropy(self.store.target_side.ids), "warnings": self.warnings}
        return DataReport(content, "\n".join([statistics.table(), self.plan.table(), *self.warnings]))

    def batch_shapes(self, first_update: int) -> list[Batch]:
        """The shapes of all batches, over all processes, in the order in which the updates after ``first_update`` need them."""
        return [batch_shape(*shape) for shape in self.plan.shapes_by_need(first_update)]

    def require_sound(self) -> None:
        """Waits for the check of the whole token store; raises DataError where it is damaged."""
        self.store.check.finish()

    def batches(self, first_update: int) -> Iterator[Batch]:
        """The batches of the updates after ``first_update``, forever; each process reads only its rows."""
        # Imported here because it opens the door to TensorFlow, which only feeding data needs.
        from transformer_jax.data.pipeline import training_batches

        parts = parts_of_rows(self.mesh)
        return training_batches(self.store, self.plan, start_update=first_update, parts=parts, prefetch=self.prefetch)


class TranslationTask:
    """Data, objective and evaluator, made from the settings of a run and its tokenizers.

    Serves every run of the same structure on the same data: no hyperparameter of a run is in it.
    """

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh) -> None:
        self.config, self.tokenizers, self._mesh = config, tokenizers, mesh
        self.corpus = open_corpus(config.data, config.data_seed)
        sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        self.objective = TranslationObjective(config, *sizes, mesh)
        width, decoding = config.training.validation_beam_width, config.decoding
        decoding = decoding.in_one_group(width) if width else decoding
        # Not those of ``evaluate``: devices wait for them.
        evaluation = replace(config.evaluation, metrics=",".join(config.validated_scores))
        validated = replace(config, decoding=decoding, evaluation=evaluation)
        self.evaluator = Evaluator(validated, tokenizers, self.objective, mesh)
        self._entropy = jax.jit(partial(sharpest_entropy, self.objective.model), out_shardings=everywhere(mesh))

    @cached_property
    def identity(self) -> dict[str, str]:
        """Digests of what the training reads: another one is another run."""
        return {
            "training data": self.corpus.fingerprint(self.config.data.train_split),
            "source tokenizer": self.tokenizers.source.fingerprint(),
            "target tokenizer": self.tokenizers.target.fingerprint(),
        }

    def training_data(self) -> TranslationData:
        """Tokenizes the training split, unless that was done before, and plans the batches."""
        data, batching = self.config.data, self.config.batching
        with first_goes_first():
            store = open_token_store(self.corpus, data.train_split, self.tokenizers, data, is_training=True)
        plan = plan_batches(store.source_lengths, store.target_lengths, batching, self.config.data_seed)
        return TranslationData(store, plan, self._mesh, batching.prefetch_batches, self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        """Of a sample of the training text: sides that are shifted, and a vocabulary that is too small for it."""
        data = self.config.data
        if data.source != "text" or jax.process_index():
            return ()
        sample = sample_of(self.corpus.pairs(data.train_split), self.corpus.count(data.train_split))
        languages = data.source_language, data.target_language
        shift = line_shift(sample.lines, sample.pairs)
        told = f"WARNING: the sides of the training text are shifted: {shift.text(*languages)}; see transformer-jax data check"
        return *[told] * shift.is_shifted, *too_many_pieces(self.tokenizers, sample.pairs[:MEASURED_PAIRS], languages)

    def init_params(self, key: Array) -> PyTree:
        """Parameters before the first update."""
        return self.objective.init_params(key)

    def loss(self, params: PyTree, batch: Batch, key: Array, hyperparameters: Hyperparameters) -> LossSums:
        """Label-smoothed cross entropy of a training batch, with dropout."""
        return self.objective.loss(params, batch, key, hyperparameters)

    def activations(self, params: PyTree, batch: Batch, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """All module outputs of a training pass, to find the first non-finite one."""
        return activations(self.objective.training_model(hyperparameters.rates), params, *batch, key=key)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> TranslationEvaluation:
        """Translates and scores a split, see ``Evaluator``; measures whether the outputs depend on the source."""
        found = self.evaluator.evaluate(params, split, limit=limit)
        signs = {"distinct_outputs": distinct_share([pair.source for pair in found.pairs], found.outputs)}
        batch = first_pairs(self.evaluator.store(found.split), row_groups(self._mesh))
        entropy = None if batch is None else self._entropy(params, put_rows(batch, self._mesh))
        if entropy is not None:
            signs["cross_attention_entropy"] = float(entropy)
        return found._replace(signs=signs)
