"""Translation: what the loop trains on, minimizes, and measures."""

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import cached_property

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import Array, PyTree
from transformer_jax.config import DataError, ExperimentConfig, Hyperparameters
from transformer_jax.data.batch_plan import BatchPlan, plan_batches
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.evaluation_batches import scoring_batches
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.token_store import TokenStore, open_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.report import EvaluationReport, perplexity
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.models.interface import Module
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.sequence_types import Batch, batch_shape
from transformer_jax.tasks.ensemble_objective import EnsembleObjective
from transformer_jax.tasks.objective import TranslationObjective
from transformer_jax.tasks.translator import Translator, require_translatable
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import everywhere, parts_of_rows, put_rows, row_groups
from transformer_jax.training.update import Update
from transformer_jax.training.vectorized import Alone, Vectorized, vectorized

SCORING_TOKENS = 4096


class TranslationTask:
    """Data, model, loss, update and evaluation, made from the settings of a run and its tokenizers.

    Serves every run of the same structure on the same data: none of their hyperparameters is in it.

    With the settings of ``others`` what is evaluated is the ensemble of all their models, with ``joined_params``.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        tokenizers: TokenizerPair,
        mesh: Mesh,
        others: Sequence[ExperimentConfig] = (),
    ) -> None:
        self.config = config
        self.tokenizers = tokenizers
        self.corpus = open_corpus(config.data, config.data_seed)
        sizes = tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size
        self.objective = TranslationObjective(config, *sizes, mesh)
        members = [self.objective, *(TranslationObjective(other, *sizes, mesh) for other in others)]
        evaluated = EnsembleObjective(members) if others else self.objective
        self.model: Module = evaluated.model
        self._mesh = mesh
        self._stores: dict[tuple[str, bool], TokenStore] = {}
        self._joined: dict[int, Alone | Vectorized] = {}
        self._compiled_loss = jax.jit(evaluated.unsmoothed_loss, out_shardings=everywhere(mesh))

    @cached_property
    def training_store(self) -> TokenStore:
        """The training split, tokenized and filtered."""
        return self._store(self.config.data.train_split, is_training=True)

    @cached_property
    def data_identity(self) -> dict[str, str]:
        """Digests of what the run reads: another one is another run."""
        return {
            "training data": self.corpus.fingerprint(self.config.data.train_split),
            "source tokenizer": self.tokenizers.source.fingerprint(),
            "target tokenizer": self.tokenizers.target.fingerprint(),
        }

    @cached_property
    def plan(self) -> BatchPlan:
        """Which pairs go into which update."""
        store = self.training_store
        return plan_batches(store.source_lengths, store.target_lengths, self.config.batching, self.config.data_seed)

    @cached_property
    def update(self) -> Update:
        """What one update does."""
        return Update(self.config, self.objective.loss, self.objective.init_params, self._mesh)

    def joined(self, runs: int) -> Alone | Vectorized:
        """What makes the updates of so many runs at once: always the same, so that nothing is compiled again."""
        if runs not in self._joined:
            self._joined[runs] = vectorized(self.update, runs)
        return self._joined[runs]

    @cached_property
    def translator(self) -> Translator:
        """Decodes with the model."""
        return Translator(self.model, self.tokenizers, self.config.decoding, self._mesh)

    def data_report(self) -> dict[str, object]:
        """JSON: what the training data is, what was left out of it, and what the batches make of it."""
        return {"training": self.training_store.statistics.to_json(), "batches": self.plan.to_json()}

    def batch_shapes(self, start_update: int) -> list[Batch]:
        """The shapes of all training batches, over all processes, in the order in which ``start_update`` and its successors
        need them.
        """
        return [batch_shape(*shape) for shape in self.plan.shapes_by_need(start_update)]

    def training_batches(self, start_update: int) -> Iterator[Batch]:
        """Batches from ``start_update`` on, for ever; each process reads only its rows."""
        # Imported here because it opens the door to TensorFlow, which only feeding data needs.
        from transformer_jax.data.pipeline import training_batches

        return training_batches(
            self.training_store,
            self.plan,
            start_update=start_update,
            parts=parts_of_rows(self._mesh),
            prefetch=self.config.batching.prefetch_batches,
        )

    def activations(self, params: PyTree, batch: Batch, key: Array, hyperparameters: Hyperparameters) -> PyTree:
        """Everything that the modules return in a training pass, for finding what went wrong."""
        rngs = {"dropout": key}
        model = self.objective.training_model(hyperparameters.rates)
        _, sown = model.apply(
            {"params": params}, *batch, train=True, rngs=rngs, capture_intermediates=True, mutable=["intermediates"]
        )
        return sown["intermediates"]

    def evaluate(
        self, params: PyTree, split: str, *, limit: int = 0, step: int = 0, averaged: int = 1
    ) -> tuple[EvaluationReport, list[str]]:
        """Scores ``params`` on a split (its first ``limit`` sentences if above 0): the report, and the translations.

        ``split`` is ``train``, ``validation``, ``test`` or a name that the data itself has. Everything is measured on the raw
        text of the references; no sentence is left out or cut. Raises DataError when the split is empty or unknown.
        """
        name = self.config.data.split_name(split)
        pairs = self.pairs(name, limit)
        sums = self.validation_sums(params, name, limit)
        started = time.perf_counter()
        translations = [best[0] for best in self.translator.translate(params, [pair.source for pair in pairs])]
        seconds = time.perf_counter() - started
        hypotheses = [translation.text for translation in translations]
        nll, tokens = float(sums.nll), float(sums.tokens)
        report = EvaluationReport(
            split=name,
            checkpoint_step=step,
            scores=score_translations(hypotheses, [pair.target for pair in pairs]),
            loss=nll / tokens,
            perplexity=perplexity(nll, tokens),
            tokens_per_second=sum(len(translation.token_ids) for translation in translations) / seconds,
            num_sentences=len(pairs),
            decoding=self.config.decoding,
            averaged_checkpoints=averaged,
        )
        return report, hypotheses

    def pairs(self, split: str, limit: int = 0) -> list[SentencePair]:
        """Raw sentence pairs of a split, all or the first ``limit``."""
        pairs = list(itertools.islice(self.corpus.pairs(split), limit or None))
        if not pairs:
            raise DataError(f"data: the split {split!r} is empty")
        return pairs

    def validation_sums(self, params: PyTree, split: str, limit: int = 0) -> LossSums:
        """Teacher-forced loss sums, without dropout or smoothing, over a split."""
        store = self._store(split, is_training=False)
        total = LossSums.zero()
        for batch in scoring_batches(store, SCORING_TOKENS, row_groups(self._mesh), limit=limit):
            total = total + self._compiled_loss(params, put_rows(batch, self._mesh))
        return total

    def _store(self, split: str, *, is_training: bool) -> TokenStore:
        if (split, is_training) not in self._stores:
            with first_goes_first():
                store = open_token_store(self.corpus, split, self.tokenizers, self.config.data, is_training=is_training)
            if not is_training:
                limit = self.config.decoding.max_source_tokens
                require_translatable(
                    np.maximum(store.source_lengths, store.target_lengths), limit, f"split {split!r}, pair"
                )
            self._stores[split, is_training] = store
        return self._stores[split, is_training]
