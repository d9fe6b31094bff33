"""Translation as a task: training data, evaluation, scores and attention of sentences."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.config import ConfigError, DataError, DecodingConfig, ExperimentConfig, load_run_config
from transformer_jax.config.data import padded_width
from transformer_jax.config.evaluation import EvaluationConfig
from transformer_jax.config.mixture import by_corpus
from transformer_jax.data.batch_plan import BatchPlan, plan_batches
from transformer_jax.data.batches import make_batch
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.examination import examined
from transformer_jax.data.mixed_corpora import describe_shares, items_of_epoch, parts_of, ranges_of, times_an_epoch
from transformer_jax.data.pair_encoding import encoded_sides, reasons_to_drop
from transformer_jax.data.parallel_text import TextCorpus, unequal_lines
from transformer_jax.data.sentence_pairs import Corpus, SentencePair, content_of, digest
from transformer_jax.data.store_statistics import unigram_entropy
from transformer_jax.data.stores import finished_manifest, open_token_store
from transformer_jax.data.text_files import read_lines
from transformer_jax.data.token_store import TokenStore
from transformer_jax.data.tokenization import PairTokenization
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import too_many_pieces, train_tokenizers
from transformer_jax.decoding.beam_search import BeamState, Rules, plain_search, search_next, start_search
from transformer_jax.decoding.program import DecodingProgram
from transformer_jax.decoding.segmented_search import capacities_of
from transformer_jax.decoding.source_batches import rows_of_full_batch
from transformer_jax.evaluation.significance import PairedScores, compare_systems, sentence_chrf
from transformer_jax.models.interface import Module
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.runtime.distributed import first_goes_first, from_first, say
from transformer_jax.runtime.hardware import batch_tokens_on, few_shapes_on
from transformer_jax.sequence_types import Batch, batch_shape
from transformer_jax.tasks.task import DataReport, Task
from transformer_jax.tasks.texts import Attention, TokenScores, attention_layers
from transformer_jax.tasks.translation.evaluator import (
    Evaluator,
    TranslationEvaluation,
    distinct_share,
    first_pairs,
    sharpest_entropy,
)
from transformer_jax.tasks.translation.pairs import PairScorer, tokens_of_pair
from transformer_jax.tasks.translation.translating import Translating
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translator import init_cache, steps_of
from transformer_jax.training.sharding import parts_of_rows, put_rows, replicated, row_groups, shard_map_rows

# First training pairs of a corpus whose loss and lengths are measured.
MEASURED_PAIRS = 1000
# Share of targets above the length limit of translations that is reported.
MANY_CUT = 0.01


@dataclass(frozen=True)
class TranslationData:
    """The tokenized and filtered training split, and the plan of updates.

    Attributes:
        prefetch: Batches read ahead.
        warnings: Faults in the text.
        times: How often an epoch has a pair of a corpus of a mixture.
    """

    store: TokenStore
    plan: BatchPlan
    mesh: Mesh
    prefetch: int
    warnings: tuple[str, ...] = ()
    times: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def report(self) -> DataReport:
        statistics = self.store.statistics
        content: dict[str, object] = {"training": asdict(statistics), "batches": self.plan.to_json()}
        ids, offsets = self.store.target_side
        sizes = {name: int(offsets[at + pairs] - offsets[at]) for name, at, pairs in ranges_of(statistics.corpora)}
        content |= {"unigram_entropy": unigram_entropy(ids, sizes, self.times), "warnings": self.warnings}
        mixture, lines = describe_shares(statistics.corpora, self.times, "pairs")
        text = "\n".join([statistics.table(), *lines, self.plan.table(), *self.warnings])
        return DataReport(content | mixture, text)

    def batch_shapes(self, first_update: int) -> list[Batch]:
        return [batch_shape(*shape) for shape in self.plan.shapes_by_need(first_update)]

    def batches(self, first_update: int) -> Iterator[Batch]:
        # Imported here because only training needs it.
        from transformer_jax.data.pipeline import prefetched, read_by_threads

        parts = parts_of_rows(self.mesh)
        read = partial(make_batch, self.store, self.plan, parts=parts)
        return (read_by_threads if self.store.is_remote else prefetched)(read, first_update, self.prefetch)


class ReferencedText(NamedTuple):
    sources: list[str]
    references: list[list[str]]


class TranslationTask(Translating, Task):
    """Translation of sentences, scored against references."""

    commands = ("translate {run} < {input}",)
    has_targets = True
    keeps_programs = False
    evaluator_type = Evaluator

    @staticmethod
    def open_source(config: ExperimentConfig) -> Corpus:
        return open_corpus(config.data, config.data_seed, config.parts)

    @classmethod
    def new_tokenizers(cls, config: ExperimentConfig) -> TokenizerPair:
        data, tags = config.data, sorted(set(by_corpus(config.data.tags, "data.tags").values()))
        return train_tokenizers(config.tokenizer, cls.open_source(config), data.train_split, config.data_seed, tags)

    @classmethod
    def require_split(cls, config: ExperimentConfig, split: str) -> None:
        # Reading a pair raises DataError if there is no such split.
        next(cls.open_source(config).pairs(config.data.split_name(split)), None)

    @staticmethod
    def batch_shape(config: ExperimentConfig, rows: int, length: int) -> Batch:
        return batch_shape(rows, length, length)

    @staticmethod
    def longest_row(config: ExperimentConfig) -> int:
        return int(config.batching.widest_row(config.data))

    @staticmethod
    def decoding(config: ExperimentConfig, objective: TranslationObjective, length: int, mesh: Mesh) -> DecodingProgram:
        longest = objective.longest_sequence
        width = length or padded_width(config.data.max_source_tokens + 1, longest)
        return translation_program(objective.model, config.decoding, width, mesh, longest)

    @staticmethod
    def begin(config: ExperimentConfig, directory: RunDirectory) -> ExperimentConfig:
        """Return the settings with the tokenizer of BLEU and the selection metric.

        Values that are set stay. The run in ``directory`` has the others, or the language of a new
        run. Raises ConfigError if a tokenizer is not installed.
        """
        if not config.scores_translations:
            return config
        language, evaluation = config.data.target_language, config.evaluation

        def of_run() -> EvaluationConfig:
            if not directory.has_checkpoints():
                return evaluation.resolved(language)
            saved = load_run_config(directory.path)
            begun = saved.evaluation.resolved(saved.data.target_language)
            tokenizer = evaluation.bleu_tokenizer or begun.bleu_tokenizer
            if tokenizer != begun.bleu_tokenizer:
                if begun.selection in ("bleu", "bleu_lowercase"):
                    by, tokenized = begun.selection, begun.bleu_tokenizer
                    problem = f"{by}, tokenized by {tokenized}, selects the checkpoints of this run"
                    remedy = f"keep {tokenized}, and run evaluate for scores by {tokenizer}"
                    raise ConfigError("evaluation.bleu_tokenizer", problem, remedy)
                before = f"BLEU was tokenized by {begun.bleu_tokenizer}, from now on by {tokenizer}"
                remark = f"evaluation.bleu_tokenizer: {before}; values before and after cannot be compared"
                say(remark, file=sys.stderr)
            return replace(evaluation, bleu_tokenizer=tokenizer, selection=begun.selection)

        # Another machine may have other tokenizers.
        settings = EvaluationConfig(**from_first(lambda: asdict(of_run()), "evaluation settings"))
        settings.require_installed(language, config.training.validation_metrics)
        if settings != evaluation and (settings.bleu_tokenizer, settings.selection) != ("13a", "bleu"):
            tokenizer, metric = settings.bleu_tokenizer, settings.selection
            choices = f"BLEU is tokenized by {tokenizer}, checkpoints are selected by {metric}"
            keys = "(evaluation.bleu_tokenizer, evaluation.selection)"
            say(f"data.target_language={language}: {choices} {keys}", file=sys.stderr)
        return replace(config, evaluation=settings)

    @cached_property
    def corpus(self) -> Corpus:
        return self.open_source(self.config)

    @cached_property
    def identity(self) -> dict[str, str]:
        data = self.config.data
        text = finished_manifest(data.store)["digest"] if data.store else content_of(self.corpus, data.train_split)
        source, target = (tokenizer.fingerprint() for tokenizer in self.tokenizers)
        return {"training data": text, "source tokenizer": source, "target tokenizer": target}

    @cached_property
    def training_store(self) -> TokenStore:
        """The tokens of the training split, opened by training and validations of a mixture."""
        data = self.config.data
        with first_goes_first("tokenized data"):
            return open_token_store(self.corpus, data.train_split, self.tokenizers, data, is_training=True)

    def training_data(self) -> TranslationData:
        data, batching = self.config.data, self.config.batching
        for tag in by_corpus(data.tags, "data.tags").values():
            if len(pieces := self.tokenizers.source.encode(tag)) != 1:
                remedy = "use --config.init.tokenizer=new, or a word that is a piece of it"
                raise ConfigError("data.tags", f"{tag} has {len(pieces)} pieces in the vocabulary, not one", remedy)
        store, epoch_pairs, times = self.training_store, None, {}
        if store.statistics.corpora:
            times = times_an_epoch(store.statistics.corpora, data)
            epoch_pairs = items_of_epoch(store.statistics.corpora, times, self.config.data_seed)
        plan = plan_batches(store.lengths(), batching, self.config.data_seed, epoch_pairs)
        return TranslationData(store, plan, self.mesh, batching.prefetch_batches, self._warnings(), times)

    def tokenization(self) -> PairTokenization:
        return PairTokenization(self.corpus, self.config.data.train_split, self.tokenizers, self.config.data)

    def validate(self, params: PyTree, split: str, *, limit: int = 0) -> TranslationEvaluation:
        """Translate and score a split, and measure whether the outputs depend on the source.

        Of a mixture, also the loss of the first training pairs of corpora, which may have no
        validation split.
        """
        evaluation = self.validator.evaluate(params, split, limit=limit)
        diagnostics = {"distinct_outputs": distinct_share(evaluation.pairs, evaluation.outputs)}
        evaluated, longest = self.validator.store(evaluation.split), self.objective.longest_sequence
        batch = first_pairs(evaluated, row_groups(self.mesh), longest)
        entropy = None if batch is None else self._entropy(params, put_rows(batch, self.mesh))
        if entropy is not None and math.isfinite(entropy):
            diagnostics["cross_attention_entropy"] = float(entropy)
        if self.config.data.source == "mixture":
            store = self.training_store
            for name, begin, number in ranges_of(store.statistics.corpora, MEASURED_PAIRS):
                if number:
                    sums = self.validator.sums_over(params, store, number, begin)
                    diagnostics[f"train_loss_{name}"] = float(sums.nll / sums.tokens)
        return replace(evaluation, diagnostics=diagnostics)

    def evaluate(self, params: PyTree, split: str, *, limit: int = 0) -> TranslationEvaluation:
        for warning in examined("split", self.config, split):
            say(warning, file=sys.stderr)
        return self.evaluator.evaluate(params, split, limit=limit)

    def _warnings(self) -> tuple[str, ...]:
        """Warn of a vocabulary that is too small, and of targets that would be cut."""
        data = self.config.data
        if data.store or jax.process_index():
            return ()
        warnings = []
        for name, corpus in parts_of(self.corpus, data.train_split).items():
            if not isinstance(corpus, TextCorpus):
                continue
            corpus, of = replace(corpus, tag="", held_out=0.0), f" of {name}" * bool(name)
            pairs = list(islice(corpus.pairs(data.train_split), MEASURED_PAIRS))
            languages = f"{corpus.source_language}{of}", f"{corpus.target_language}{of}"
            warnings += too_many_pieces(self.tokenizers, pairs, languages)
            warnings += self._cut_translations(pairs, of)
        return tuple(warnings)

    def _cut_translations(self, pairs: Sequence[SentencePair], of: str) -> list[str]:
        """Warn if over a hundredth of the targets are longer than translations can be."""
        sides = encoded_sides(pairs, self.tokenizers, None, num_threads=1)
        left_out, limit = reasons_to_drop(self.config.data, pairs, sides), self.config.decoding.max_extra_tokens
        sizes = zip(*([len(ids) for ids in side] for side in sides), strict=True)
        extra = [target - source for index, (source, target) in enumerate(sizes) if index not in left_out]
        share = np.mean(np.array(extra) > limit) if extra else 0.0
        if share <= MANY_CUT:
            return []
        enough = int(np.quantile(extra, 1 - MANY_CUT, method="higher"))
        return [
            f"WARNING: {share:.1%} of the targets{of} have over {limit} tokens more than their sources, where translations "
            f"are cut; raise decoding.max_extra_tokens, to {enough} for 99 % of them"
        ]

    @cached_property
    def evaluator(self) -> Evaluator:
        return self.evaluator_type(self.config, self.translator, self.objective, self.open_source)

    @cached_property
    def validator(self) -> Evaluator:
        """Scores splits as validations do: perhaps with fewer beams and scores."""
        evaluation = replace(self.config.evaluation, metrics=",".join(self.config.validated_scores))
        decoding, width = self.config.decoding, self.config.training.validation_beam_width
        decoding = replace(decoding, beam_width=width) if width else decoding
        validated = replace(self.config, decoding=decoding, evaluation=evaluation)
        return self.evaluator_type(validated, self.new_translator(validated), self.objective, self.open_source)

    @cached_property
    def scorer(self) -> PairScorer:
        model, longest = self.objective.model, self.objective.longest_sequence
        return PairScorer(model, self.tokenizers, self.config.decoding, self.mesh, longest)

    @cached_property
    def _entropy(self) -> Callable[[PyTree, Batch], Array | None]:
        return jax.jit(partial(sharpest_entropy, self.objective.model), out_shardings=replicated(self.mesh))

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> ReferencedText:
        """Return the lines of a file and of its references.

        Raises ConfigError without references, DataError if the numbers of lines differ.
        """
        if not references:
            raise ConfigError("--references", "--source and --references belong together", "give both")
        sources, *translations = (list(read_lines(Path(name))) for name in (source, *references))
        if not sources:
            raise DataError(f"{source}: the file is empty; expected one sentence a line")
        for name, lines in zip(references, translations, strict=True):
            if len(lines) != len(sources):
                raise unequal_lines(Path(source), Path(name), len(sources), len(lines))
        for name, lines in zip(references, translations, strict=True):
            for warning in examined("pairs", config, (source, name), [*map(SentencePair, sources, lines)]):
                say(warning, file=sys.stderr)
        return ReferencedText(sources, translations)

    def evaluate_text(self, params: PyTree, text: ReferencedText, name: str) -> TranslationEvaluation:
        """Translate a text and score it, with the perplexity of the first references."""
        sources, references = text
        nll, tokens = self.scorer.nll(params, sources, references[0])
        pairs = [SentencePair(*pair) for pair in zip(sources, references[0], strict=True)]
        called = f"text-{name}-{digest([*sources, *(line for lines in references for line in lines)])[:8]}"
        return replace(self.evaluator.translated(params, called, pairs, references, nll, tokens), references=references)

    @classmethod
    def scored_pairs(cls, config: ExperimentConfig, split: str) -> list[SentencePair]:
        return list(cls.open_source(config).pairs(split))

    @staticmethod
    def paired_scores(config: ExperimentConfig) -> PairedScores:
        """Return paired scores by BLEU, with the tokenizer of the settings, and chrF."""
        tokenizer = config.evaluation.tokenizer(config.data.target_language)
        return PairedScores(partial(compare_systems, tokenizer=tokenizer), sentence_chrf, "chrF")

    def score_texts(self, params: PyTree, texts: Sequence[str], targets: Sequence[str] | None) -> list[TokenScores]:
        return self.scorer.score(params, texts, targets or ())

    def attention_of(self, params: PyTree, text: str, target: str | None) -> Attention:
        """Return all attention of a sentence and its translation, by default the model's."""
        if target is None:
            target = self.translator.translate(params, [text])[0][0].text
        sides, axes = tokens_of_pair(self.tokenizers, text, target)
        return Attention(text, target, attention_layers(self.objective.model, params, sides, axes))


def translation_program(
    model: Module, decoding: DecodingConfig, width: int, mesh: Mesh, longest: int | None
) -> DecodingProgram:
    """Return plain beam search over a full batch of sentences of ``width`` tokens.

    All are translated to their length limit. ``longest``: maximum length of a sequence of the
    model; None: any.
    """
    rows = row_groups(mesh) * rows_of_full_batch(width, batch_tokens_on(mesh, decoding.batch_tokens))
    max_length = width + decoding.max_extra_tokens
    max_length = min(max_length, longest or max_length)
    rules = Rules(decoding.beam_width, 1, decoding.length_penalty, stop=decoding.stop)
    choose, make_step = shard_map_rows(mesh)(plain_search(rules).choose), steps_of(model)

    def start(params: PyTree, source_ids: Int[Array, "B S"], capacity: int) -> BeamState:
        limits = jnp.full((rows,), max_length, jnp.int32)
        cache = init_cache(model, decoding.beam_width, params, source_ids, capacity)
        return start_search(cache, limits, capacity, rules=rules)

    def step(params: PyTree, state: BeamState) -> BeamState:
        return search_next(make_step(params), state, choose)

    inputs = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    capacities = capacities_of(max_length, few_shapes_on(mesh))
    return DecodingProgram(rows, width, decoding.beam_width, inputs, start, step, capacities)
