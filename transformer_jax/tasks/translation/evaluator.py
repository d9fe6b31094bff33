"""Translations of a split, their scores, and signs of a model that ignores its source."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.array_types import PAD_ID, Array, Bool, Float, PyTree
from transformer_jax.config import DataError, ExperimentConfig
from transformer_jax.config.evaluation import bleu_tokenizer_of
from transformer_jax.data.batch_plan import BatchRows
from transformer_jax.data.batches import SCORING_TOKENS, read_rows, scoring_batches
from transformer_jax.data.mixed_corpora import parts_of, ranges_of
from transformer_jax.data.sentence_pairs import Corpus, SentencePair, digest_of
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.token_store import TokenStore
from transformer_jax.evaluation.scores import LABELS, EvaluationReport, Scores, score_translations
from transformer_jax.models.inspection import attention_maps, layers_by_kind
from transformer_jax.models.interface import Module
from transformer_jax.runtime.distributed import first_goes_first, from_first
from transformer_jax.runtime.hardware import few_shapes_on
from transformer_jax.sequence_types import Batch
from transformer_jax.tasks.remarks import OUTPUTS
from transformer_jax.tasks.task import PrintedEvaluation, share_of
from transformer_jax.tasks.translation.translation_ensemble import EnsembleObjective
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translator import Translation, Translator, require_translatable
from transformer_jax.training.losses import LossSums, perplexity
from transformer_jax.training.sharding import put_rows, replicated, row_groups

# Pairs for the entropy of cross attention.
PAIRS = 32
# Widths of their batch.
WIDTHS = (32, 64, 128)


@dataclass(frozen=True, repr=False)
class TranslationEvaluation(PrintedEvaluation):
    """A report with the translations and their pairs, in the order of the split.

    Attributes:
        references: One or several lists, saved with the scores and sources, only for text that is
            not a split of the data.
        diagnostics: Measurements of whether the model uses its source, for the log.
        corpora: Scores and loss by corpus of a mixture.
        split_size: Pairs of the split, whose first are these, or 0 for all.
        remarks: ``cut`` or ``repeats`` by output.
    """

    report: EvaluationReport
    outputs: Sequence[str]
    pairs: Sequence[SentencePair] = ()
    references: Sequence[Sequence[str]] = ()
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    corpora: Mapping[str, Scores] = field(default_factory=dict)
    split_size: int = 0
    remarks: Sequence[tuple[str, ...]] = ()

    @property
    def split(self) -> str:
        return self.report.split

    @property
    def metrics(self) -> dict[str, float]:
        of_corpora = {
            f"{name}_{corpus}": value
            for corpus, scores in self.corpora.items()
            for name, value in scores.values.items()
        }
        return {**self.report.headline(), **of_corpora, **self.diagnostics}

    @property
    def basis(self) -> str:
        sentences = share_of(self.report.num_sentences, self.split_size, "sentences")
        return f"{sentences}, {self.report.decoding.search_name}"

    @property
    def signature(self) -> str:
        return self.report.signature

    def to_json(self) -> dict[str, object]:
        remarks = {f"lines_with_{name}": numbers for name, numbers in self._lines_with().items()}
        report = {**self.report.to_json(), "text": digest_of(self.pairs), **remarks}
        if not self.references:
            corpora = {name: scores.to_json() for name, scores in self.corpora.items()}
            return {**report, **({"corpora": corpora} if corpora else {})}
        sources = [pair.source for pair in self.pairs]
        return {**report, "sources": sources, "references": [list(lines) for lines in self.references]}

    def rows(self) -> list[tuple[str, str, str]]:
        corpora = [
            (f"{LABELS.get(name, name)} of {corpus}", f"{value:.2f}", scores.signatures.get(name, ""))
            for corpus, scores in self.corpora.items()
            for name, value in scores.values.items()
        ]
        scored = self.report.num_sentences
        sentences = share_of(scored, self.split_size, "sentences")
        remark = f"the first {sentences}" if 0 < self.split_size != scored else f"{sentences}, none left out"
        remarks = [
            (name, f"{len(numbers):,}", f"outputs {OUTPUTS[name]} (first: line {numbers[0]:,})")
            for name, numbers in self._lines_with().items()
            if numbers
        ]
        return [("split", self.split, remark), *self.report.rows(), *corpora, *remarks]

    def _lines_with(self) -> dict[str, list[int]]:
        if not self.remarks:
            return {}
        numbered = list(enumerate(self.remarks, start=1))
        return {name: [number for number, remarks in numbered if name in remarks] for name in OUTPUTS}

    def examples(self, count: int) -> str:
        shown = list(zip(self.pairs, self.outputs, strict=False))[:count]
        return "\n".join(
            f"source      {pair.source}\ntranslation {output}\nreference   {pair.target}\n" for pair, output in shown
        )


class Measured(NamedTuple):
    """A split, its loss in nats per token, its perplexity, and the seconds that decoding took."""

    split: str
    loss: float
    perplexity: float
    seconds: float


class Evaluator:
    """Evaluates parameters by the loss of ``scored`` and the translations of ``translator``.

    Programs and data are kept.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        translator: Translator,
        scored: TranslationObjective | EnsembleObjective,
        open_source: Callable[[ExperimentConfig], Corpus],
    ) -> None:
        """Prepare evaluations. ``open_source`` is the method of the task."""
        self.config, self.translator, self._open_source = config, translator, open_source
        self._mesh, self._evaluation_dtype = translator.mesh, scored.evaluation_dtype
        self._longest = scored.longest_sequence
        self._stores: dict[str, TokenStore] = {}
        self._compiled_loss = jax.jit(scored.unsmoothed_loss, out_shardings=replicated(self._mesh))

    @cached_property
    def corpus(self) -> Corpus:
        return self._open_source(self.config)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> TranslationEvaluation:
        """Score ``params`` on a split as ``Task.validate``, against the raw text of the references.

        No sentence is left out or truncated. Of a mixture, ``limit`` is divided between the
        corpora, and there are metrics of corpora. Raises DataError if the split is empty or does
        not exist.
        """
        name = self.config.data.split_name(split)
        parts, store = self.pairs_by_corpus(name, limit), self.store(name)
        ranges = ranges_of(store.statistics.corpora) or [("", 0, 0)]
        sums = {
            corpus: self.sums_over(params, store, len(parts[corpus]), begin)
            for corpus, begin, _ in ranges
            if parts[corpus]
        }
        total = sum(sums.values(), LossSums.zero())
        pairs = [pair for part in parts.values() for pair in part]
        references = [pair.target for pair in pairs]
        evaluation = self.translated(params, name, pairs, references, float(total.nll), float(total.tokens))
        evaluation = replace(evaluation, split_size=store.num_pairs)
        if "" in sums:
            return evaluation
        corpora, outputs = {}, iter(evaluation.outputs)
        for corpus, source in parts_of(self.corpus, name).items():
            if part := parts[corpus]:
                hypotheses, references = list(itertools.islice(outputs, len(part))), [pair.target for pair in part]
                scores = self._scores(hypotheses, references, part, source.target_language)
                loss = float(sums[corpus].nll / sums[corpus].tokens)
                corpora[corpus] = replace(scores, values={"loss": loss, **scores.values})
        return replace(evaluation, corpora=corpora)

    def translated(
        self,
        params: PyTree,
        name: str,
        pairs: Sequence[SentencePair],
        references: Sequence[str] | Sequence[Sequence[str]],
        nll: float,
        tokens: float,
    ) -> TranslationEvaluation:
        """Translate the sources of ``pairs``, and score them with ``nll`` in nats of ``tokens``."""
        started = time.perf_counter()
        translations = [best[0] for best in self.translator.translate(params, [pair.source for pair in pairs])]
        measured = Measured(name, nll / tokens, perplexity(nll, tokens), time.perf_counter() - started)
        return self.scored(measured, pairs, references, translations)

    def scored(
        self,
        measured: Measured,
        pairs: Sequence[SentencePair],
        references: Sequence[str] | Sequence[Sequence[str]],
        translations: Sequence[Translation],
    ) -> TranslationEvaluation:
        hypotheses = [translation.text for translation in translations]
        report = EvaluationReport(
            split=measured.split,
            scores=self._scores(hypotheses, references, pairs),
            loss=measured.loss,
            perplexity=measured.perplexity,
            tokens_per_second=sum(len(translation.token_ids) for translation in translations) / measured.seconds,
            num_sentences=len(pairs),
            decoding=self.config.decoding,
            compute_dtype=self._evaluation_dtype,
        )
        remarks = [translation.remarks for translation in translations]
        return TranslationEvaluation(report, hypotheses, pairs, remarks=remarks)

    def _scores(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        pairs: Sequence[SentencePair],
        language: str = "",
    ) -> Scores:
        """Return scores, computed on process 0 for all processes.

        ``language``: of a corpus of a mixture, which chooses its tokenizer unless the settings do.
        """
        default, settings = self.config.data.target_language, self.config.evaluation
        if language and settings.bleu_tokenizer == bleu_tokenizer_of(default):
            settings = replace(settings, bleu_tokenizer="")
        arguments = hypotheses, references, language or default, settings, [pair.source for pair in pairs]
        scores = from_first(lambda: asdict(score_translations(*arguments, self.config.parts)), "scores of translations")
        return Scores(**scores)

    def pairs(self, split: str, limit: int = 0) -> list[SentencePair]:
        """Return raw pairs of a split, all or ``limit``, or raise DataError if it is empty."""
        return [pair for part in self.pairs_by_corpus(split, limit).values() for pair in part]

    def pairs_by_corpus(self, split: str, limit: int) -> dict[str, list[SentencePair]]:
        """Return raw pairs, all or the first ``limit``, by corpus of a mixture, or under ``""``."""
        parts = parts_of(self.corpus, split)
        pairs_of = {name: list(itertools.islice(part.pairs(split), limit or None)) for name, part in parts.items()}
        if not any(pairs_of.values()):
            raise DataError(f"data: the split {split!r} is empty")
        ranges = ranges_of({name: len(pairs) for name, pairs in pairs_of.items()}, limit)
        return {name: pairs_of[name][:number] for name, _, number in ranges}

    def sums_over(self, params: PyTree, store: TokenStore, limit: int, begin: int) -> LossSums:
        """Return loss sums, without dropout or smoothing, of ``limit`` pairs from ``begin``."""
        groups, few_shapes = row_groups(self._mesh), few_shapes_on(self._mesh)
        batches = scoring_batches(
            store, SCORING_TOKENS, groups, longest=self._longest, limit=limit, few_shapes=few_shapes, begin=begin
        )
        sums = (self._compiled_loss(params, put_rows(batch, self._mesh)) for batch in batches)
        return sum(sums, LossSums.zero())

    def store(self, split: str) -> TokenStore:
        """Return the tokens of a split, or raise DataError if a pair is too long."""
        if split not in self._stores:
            with first_goes_first("tokenized data"):
                tokenizers = self.translator.tokenizers
                store = open_token_store(self.corpus, split, tokenizers, self.config.data, is_training=False)
            limit = self.config.decoding.max_source_tokens
            require_translatable(store.lengths().max(axis=0), limit, f"split {split!r}, pair", longest=self._longest)
            self._stores[split] = store
        return self._stores[split]


def sharpest_entropy(model: Module, params: PyTree, batch: Batch) -> Float[Array, ""] | None:
    """Return the lowest entropy of a head of cross attention over ln n, averaged over targets.

    Uniform weights over n tokens have 1; near 1, every head of every layer is uniform. The weights
    are those before dropout. Heads with negative weights, which have no entropy, are left out:
    infinity if all have some. None for a model without cross attention.
    """
    layers = layers_by_kind(attention_maps(model, params, *batch)).get("cross")
    if layers is None:
        return None
    is_source, is_target = jnp.asarray(batch.source.ids) != PAD_ID, jnp.asarray(batch.target.ids) != PAD_ID
    shares = [_entropy_shares(weights, is_source, is_target) for weights in layers.values()]
    return jnp.min(jnp.concatenate(shares))


def _entropy_shares(
    weights: Float[Array, "B H T S"], is_source: Bool[Array, "B S"], is_target: Bool[Array, "B T"]
) -> Float[Array, " H"]:
    weights = weights.astype(jnp.float32)
    entropies = -jnp.sum(weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), axis=-1)
    of_heads = jnp.einsum("BHT,BT->H", entropies, is_target.astype(jnp.float32))
    # Empty rows fill a batch.
    uniform = jnp.log(jnp.maximum(is_source.sum(axis=1), 1).astype(jnp.float32))
    shares = of_heads / jnp.maximum(jnp.sum(uniform * is_target.sum(axis=1)), 1e-6)
    return jnp.where(jnp.any(weights < 0, axis=(0, 2, 3)), jnp.inf, shares)


def first_pairs(store: TokenStore, row_multiple: int, longest: int | None) -> Batch | None:
    """Return a batch of the first ``PAIRS`` pairs that fit into one of ``WIDTHS``.

    None if all are longer. ``longest``: maximum length of a sequence of the model, which limits the
    width; None: any.
    """
    longer_side = store.lengths(4 * PAIRS).max(axis=0)
    width = next((width for width in WIDTHS if np.mean(longer_side <= width) > 0.5), WIDTHS[-1])
    width = min(width, longest or width)
    pairs = np.flatnonzero(longer_side <= width)[:PAIRS]
    if not len(pairs):
        return None
    rows = -(-PAIRS // row_multiple) * row_multiple
    return read_rows(store, BatchRows((rows, width, width), pairs, np.minimum(np.arange(rows + 1), len(pairs))))


def distinct_share(pairs: Sequence[SentencePair], outputs: Sequence[str]) -> float:
    """Return distinct nonempty outputs over distinct sources or targets, whichever are fewer."""
    different = {pair.source: output for pair, output in zip(pairs, outputs, strict=True)}
    expected = min(len(different), len({pair.target for pair in pairs}))
    return min(len({output for output in different.values() if output.strip()}) / max(expected, 1), 1.0)
