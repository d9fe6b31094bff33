"""Translates and scores a split with one model: in training, by command, beside a run, and for ensembles."""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.data.batches import scoring_batches
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.token_store import TokenStore, open_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.evaluation.report import EvaluationReport, perplexity
from transformer_jax.evaluation.scores import score_translations
from transformer_jax.models.interface import Module
from transformer_jax.runtime.distributed import first_goes_first
from transformer_jax.runtime.hardware import few_shapes_on
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.translation.sources import require_translatable
from transformer_jax.tasks.translation.translator import Translator
from transformer_jax.training.losses import LossSums
from transformer_jax.training.sharding import everywhere, put_rows, row_groups

SCORING_TOKENS = 4096


@runtime_checkable
class Scored(Protocol):
    """A model and its loss without dropout and smoothing; ``TranslationObjective`` and ``EnsembleObjective`` are such."""

    @property
    def model(self) -> Module:
        """Model used for decoding."""

    @property
    def evaluation_dtype(self) -> str:
        """Precision of the products of decoding and loss."""

    @property
    def longest_sequence(self) -> int | None:
        """Most positions that the model has; None: any number."""

    def unsmoothed_loss(self, params: PyTree, batch: Batch) -> LossSums:
        """Cross entropy of a batch."""


class TranslationEvaluation(NamedTuple):
    """A report, and the translations beside their pairs, in the order of the split.

    ``references`` of text that is no split of the data, one list or several, are kept with the scores, and so are the sources.
    ``signs``: measurements of whether the model uses its source, for the log.
    """

    report: EvaluationReport
    outputs: Sequence[str]
    pairs: Sequence[SentencePair] = ()
    references: Sequence[Sequence[str]] = ()
    signs: Mapping[str, float] = {}

    @property
    def split(self) -> str:
        """Name of the split in the data."""
        return self.report.split

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics for the log."""
        return {**self.report.headline(), **self.signs}

    @property
    def summary(self) -> str:
        """BLEU and perplexity."""
        return self.report.line()

    def to_json(self) -> dict[str, object]:
        """The report."""
        if not self.references:
            return self.report.to_json()
        sources = [pair.source for pair in self.pairs]
        return {**self.report.to_json(), "sources": sources, "references": [list(each) for each in self.references]}

    def rows(self) -> list[tuple[str, str, str]]:
        """The report as lines of a table."""
        return self.report.rows()

    def examples(self, count: int) -> str:
        """The first ``count`` sources, translations and references."""
        shown = list(zip(self.pairs, self.outputs, strict=False))[:count]
        return "\n".join(
            f"source      {pair.source}\ntranslation {output}\nreference   {pair.target}\n" for pair, output in shown
        )


class Evaluator:
    """Evaluates parameters of ``scored``, with the decoding settings of ``config``; compiled programs and data are kept."""

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, scored: Scored, mesh: Mesh) -> None:
        self.config, self.tokenizers, self._mesh = config, tokenizers, mesh
        self.corpus = open_corpus(config.data, config.data_seed)
        self.evaluation_dtype = scored.evaluation_dtype
        of_model = scored.longest_sequence, scored.evaluation_dtype
        self.translator = Translator(scored.model, tokenizers, config.decoding, mesh, *of_model)
        self._stores: dict[str, TokenStore] = {}
        self._compiled_loss = jax.jit(scored.unsmoothed_loss, out_shardings=everywhere(mesh))

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> TranslationEvaluation:
        """Scores ``params`` on a split (its first ``limit`` sentences if above 0).

        ``split`` is ``train``, ``validation``, ``test`` or a name that the data itself has. Everything is measured on the raw
        text of the references; no sentence is left out or cut. Raises DataError when the split is empty or unknown.
        """
        name = self.config.data.split_name(split)
        pairs = self.pairs(name, limit)
        sums = self.loss_sums(params, name, limit)
        references = [pair.target for pair in pairs]
        return self.translated(params, name, pairs, references, float(sums.nll), float(sums.tokens))

    def translated(
        self,
        params: PyTree,
        name: str,
        pairs: Sequence[SentencePair],
        references: Sequence[str] | Sequence[Sequence[str]],
        nll: float,
        tokens: float,
    ) -> TranslationEvaluation:
        """Translates the sources of ``pairs``, scores them against ``references``, and reports with a given loss, in nats."""
        started = time.perf_counter()
        translations = [best[0] for best in self.translator.translate(params, [pair.source for pair in pairs])]
        seconds = time.perf_counter() - started
        hypotheses = [translation.text for translation in translations]
        report = EvaluationReport(
            split=name,
            scores=score_translations(hypotheses, references, self.config.data.target_language, self.config.evaluation),
            loss=nll / tokens,
            perplexity=perplexity(nll, tokens),
            tokens_per_second=sum(len(translation.token_ids) for translation in translations) / seconds,
            num_sentences=len(pairs),
            decoding=self.config.decoding,
            compute_dtype=self.evaluation_dtype,
        )
        return TranslationEvaluation(report, hypotheses, pairs)

    def pairs(self, split: str, limit: int = 0) -> list[SentencePair]:
        """Raw sentence pairs of a split, all or the first ``limit``."""
        pairs = list(itertools.islice(self.corpus.pairs(split), limit or None))
        if not pairs:
            raise DataError(f"data: the split {split!r} is empty")
        return pairs

    def loss_sums(self, params: PyTree, split: str, limit: int = 0) -> LossSums:
        """Teacher-forced loss sums, without dropout or smoothing, over a split."""
        total = LossSums.zero()
        few, rows = few_shapes_on(self._mesh), row_groups(self._mesh)
        for batch in scoring_batches(self.store(split), SCORING_TOKENS, rows, limit=limit, few_shapes=few):
            total = total + self._compiled_loss(params, put_rows(batch, self._mesh))
        return total

    def store(self, split: str) -> TokenStore:
        """The tokens of a split, every pair of it. Raises DataError when one is longer than decoding takes."""
        if split not in self._stores:
            with first_goes_first():
                store = open_token_store(self.corpus, split, self.tokenizers, self.config.data, is_training=False)
            lengths = np.maximum(store.source_lengths, store.target_lengths)
            require_translatable(lengths, self.config.decoding.max_source_tokens, f"split {split!r}, pair")
            self._stores[split] = store
        return self._stores[split]
