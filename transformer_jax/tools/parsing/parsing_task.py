"""Parsing as translation of words into linearized trees."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from transformer_jax.array_types import PyTree
from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.sentence_pairs import SentencePair, digest
from transformer_jax.data.text_files import ascii_words, read_lines, says_nothing, visible
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import sample_examples, train_tokenizer
from transformer_jax.decoding.constraints import Constraint
from transformer_jax.evaluation.significance import PairedScores
from transformer_jax.runtime.distributed import say
from transformer_jax.tasks.translation.evaluator import Evaluator, Measured, TranslationEvaluation
from transformer_jax.tasks.translation.translation_task import ReferencedText, TranslationData, TranslationTask
from transformer_jax.tasks.translation.translator import Translation, Translator
from transformer_jax.tools.parsing.bracket_scores import (
    RULES,
    BracketScores,
    compare_parsers,
    counts_of,
    f1_by_length,
    scores_of,
    sentence_f1,
)
from transformer_jax.tools.parsing.corpus import TreeCorpus, linearized
from transformer_jax.tools.parsing.parsing_settings import ParserConfig
from transformer_jax.tools.parsing.tokenizers import SentenceTokenizer, SymbolTokenizer, count_positions
from transformer_jax.tools.parsing.trees import (
    UNKNOWN,
    is_position,
    normalized,
    read_trees,
    roots_of,
    tree_of_symbols,
    trees_of_texts,
    without_escapes,
)
from transformer_jax.tools.parsing.well_formed import well_formed


class Parse(NamedTuple):
    """A tree as text, its length-normalized log-probability, and the model's symbols with repairs.

    ``remarks`` are as of a ``Translation``.
    """

    text: str
    score: float
    symbols: str
    repairs: Mapping[str, int]
    remarks: tuple[str, ...] = ()


class ParsingReport(NamedTuple):
    """Scores of a split, its decoding, and the number of outputs that were repaired.

    ``loss`` is nats per symbol, without label smoothing.
    """

    split: str
    scores: BracketScores
    by_length: Mapping[str, tuple[int, float]]
    repaired: int
    repairs: Mapping[str, int]
    loss: float
    perplexity: float
    sentences_per_second: float
    num_sentences: int
    decoding: ParserConfig

    def headline(self) -> dict[str, float]:
        numbers = {"loss": self.loss, "perplexity": self.perplexity, "sentences_per_second": self.sentences_per_second}
        return {**self.scores._asdict(), **numbers, "repaired": self.repaired / self.num_sentences}

    @property
    def signature(self) -> str:
        return f"F1: {RULES}"

    def to_json(self) -> dict[str, object]:
        fields = {"decoding": vars(self.decoding), "scores": self.scores._asdict(), "rules": RULES}
        return self._asdict() | fields

    def rows(self) -> list[tuple[str, str, str]]:
        search = f"{self.decoding.search_name}, length penalty {self.decoding.length_penalty:g}"
        form = "only trees over the words" if self.decoding.constrained else "any symbols"
        repairs = ", ".join(f"{count} {name}" for name, count in self.repairs.items())
        return [
            ("F1", f"{self.scores.f1:.2f}", RULES),
            ("precision", f"{self.scores.precision:.2f}", "labelled brackets"),
            ("recall", f"{self.scores.recall:.2f}", "labelled brackets"),
            ("exact match", f"{self.scores.exact_match:.2f}", "% of sentences"),
            (
                "crossing",
                f"{self.scores.crossing:.2f}",
                f"brackets a sentence; {self.scores.no_crossing:.2f} % have none",
            ),
            *((f"F1, {name} words", f"{f1:.2f}", f"{count} sentences") for name, (count, f1) in self.by_length.items()),
            ("repaired", str(self.repaired), repairs or "no output was malformed"),
            ("loss", f"{self.loss:.4f}", "nats per symbol, no label smoothing"),
            ("perplexity", f"{self.perplexity:.3f}", "per symbol"),
            ("sentences/s", f"{self.sentences_per_second:.1f}", f"{search}, {form}, compilation included"),
        ]


def open_trees(config: ExperimentConfig) -> TreeCorpus:
    """Return the source of the trees, which reads nothing yet."""
    corpus = open_corpus(config.data, config.data_seed, config.parts)
    if not isinstance(corpus, TreeCorpus):
        remedy = "subclass TreeCorpus of tools.parsing.corpus"
        raise ConfigError("data.source", f"the corpus of {config.data.source} is not a TreeCorpus", remedy)
    return corpus


class ParsingEvaluator(Evaluator):
    """Parses splits and scores the trees."""

    def pairs_by_corpus(self, split: str, limit: int) -> dict[str, list[SentencePair]]:
        return {"": ParsingTask.scored_pairs(self.config, split, limit)}

    def scored(
        self, measured: Measured, pairs: Sequence[SentencePair], references: Any, translations: Sequence[Translation]
    ) -> TranslationEvaluation:
        """Report on the trees of outputs."""
        repairs, repaired, trees = Counter[str](), 0, []
        form, positions = self.config.data.linearization, count_positions(self.translator.tokenizers.target)
        for pair, output in zip(pairs, translations, strict=True):
            of_sentence = Counter[str]()
            symbols, words = ascii_words(output.text), ascii_words(pair.source)
            trees.append(tree_of_symbols(symbols, words, form, of_sentence, positions))
            repairs += of_sentence
            repaired += bool(+of_sentence)
        counts = counts_of(trees_of_texts(pair.target for pair in pairs), trees)
        report: Any = ParsingReport(
            split=measured.split,
            scores=scores_of(counts.sum(axis=0)),
            by_length=f1_by_length(counts),
            repaired=repaired,
            repairs=dict(repairs.most_common()),
            loss=measured.loss,
            perplexity=measured.perplexity,
            sentences_per_second=len(pairs) / measured.seconds,
            num_sentences=len(pairs),
            decoding=self.config.decoding,
        )
        remarks = [output.remarks for output in translations]
        return TranslationEvaluation(report, [str(tree) for tree in trees], pairs, remarks=remarks)


class ParsingTask(TranslationTask):
    """Constituency parsing (section 6.3), scored by labelled F1."""

    commands = ("parse {run} < {input}",)
    evaluator_type = ParsingEvaluator

    def __init__(self, config: ExperimentConfig, tokenizers: TokenizerPair, mesh: Mesh, objective: Any = None) -> None:
        super().__init__(
            config, TokenizerPair(SentenceTokenizer(tokenizers.source), tokenizers.target), mesh, objective
        )

    @staticmethod
    def new_tokenizers(config: ExperimentConfig) -> TokenizerPair:
        """Train tokenizers: of words as ``tokenizer`` says, and of all symbols."""
        symbols = Counter[str]()

        def sentences() -> Iterator[str]:
            for pair in open_trees(config).pairs(config.data.train_split):
                symbols.update(ascii_words(pair.target))
                yield pair.source

        sample = sample_examples(sentences(), config.tokenizer.training_sentences, config.data_seed)
        source = train_tokenizer(config.tokenizer, sample)
        return TokenizerPair(source, SymbolTokenizer(sorted(symbols, key=lambda symbol: (-symbols[symbol], symbol))))

    def training_data(self) -> TranslationData:
        """Return data as of translation, with a warning that counts removals from trees."""
        data = super().training_data()
        if self.config.data.store or jax.process_index():
            return data
        removed = open_trees(self.config).removed(self.config.data.train_split)
        counts = ", ".join(f"{count:,} {name}" for name, count in removed.items())
        return replace(data, warnings=(f"removed from the trees: {counts}",)) if counts else data

    def new_translator(self, config: ExperimentConfig, constraint: Constraint | None = None) -> Translator:
        """Return a translator, constrained if ``decoding.constrained``."""
        if config.decoding.constrained:
            constraint = well_formed(self.tokenizers, config.data, config.decoding, self.objective.longest_sequence)
        return super().new_translator(config, constraint)

    @staticmethod
    def scored_pairs(config: ExperimentConfig, split: str, limit: int = 0) -> list[SentencePair]:
        """Return sentences and their trees, all or the first ``limit``."""
        trees = islice(open_trees(config).trees(split), limit or None)
        return [SentencePair(tree.sentence, str(tree)) for tree in trees]

    @staticmethod
    def paired_scores(config: ExperimentConfig) -> PairedScores:
        return PairedScores(compare_parsers, sentence_f1, "F1")

    def parse_each(
        self, params: PyTree, sentences: Sequence[str], on_parse: Callable[[int, list[Parse]], None], **options: Any
    ) -> None:
        """Call ``on_parse`` with the index and the best trees of sentences, as ``translate_each``.

        Words have spaces between them. Trees have round brackets as ``-LRB-`` and ``-RRB-``.
        """

        def on_translation(index: int, results: list[Translation]) -> None:
            on_parse(index, [self._parse(sentences[index], result) for result in results])

        self.translator.translate_each(params, sentences, on_translation, **options)

    def parse(self, params: PyTree, sentences: Sequence[str], **options: Any) -> list[list[Parse]]:
        """Return the best trees of sentences. Options are as for ``parse_each``."""
        parsed: list[list[Parse]] = []
        self.parse_each(params, sentences, lambda _, trees: parsed.append(trees), **options)
        return parsed

    def outline(self, sentence: str, symbols: str) -> list[tuple[int, str, int]]:
        """Return the tree of an output from the root: depth, label or word, index of its symbol."""
        numbered = [
            symbol if symbol[0] == ")" or symbol == UNKNOWN or is_position(symbol) else f"{symbol} {index}"
            for index, symbol in enumerate(ascii_words(symbols))
        ]
        stack, lines = [(0, tree_of_symbols(numbered, ascii_words(sentence), self.config.data.linearization))], []
        while stack:
            depth, tree = stack.pop()
            label, _, index = tree.label.partition(" ")
            lines.append((depth, tree.word or label, int(index or -1)))
            stack += [(depth + 1, child) for child in reversed(tree.children)]
        return lines

    def _parse(self, sentence: str, output: Translation) -> Parse:
        repairs, source = Counter[str](), self.tokenizers.source
        form, positions = self.config.data.linearization, count_positions(self.tokenizers.target)
        is_blank = source.is_blank(sentence, source.encode(sentence))
        words, symbols = ascii_words(sentence), ascii_words(output.text)
        tree = "" if is_blank else str(tree_of_symbols(symbols, words, form, repairs, positions))
        return Parse(tree, output.score, output.text, dict(+repairs), output.remarks)

    @staticmethod
    def open_text(config: ExperimentConfig, source: str, references: Sequence[str]) -> ReferencedText:
        """Return the sentences of a file and their trees in another."""
        if len(references) != 1:
            raise ConfigError("--references", "give one file of trees for the sentences of --source")
        name, sentences = references[0], list(read_lines(Path(source)))
        located = list(read_trees(Path(name)))
        roots, counts = roots_of(lambda: (tree for tree, _ in located)), Counter[str]()
        trees = [(tree, line) for raw, line in located if (tree := normalized(raw, counts, roots))]
        for root, count in counts.items():
            if root.startswith("roots "):
                say(f"{name}: {count:,} {root} removed, which are no constituents", sys.stderr)
        num_blank = sum(map(says_nothing, sentences))
        if num_blank and len(trees) == len(sentences) - num_blank:
            lines = f"{num_blank:,} empty line{'s' * (num_blank > 1)}"
            say(f"{source}: {lines} left out, which have no tree. The others are counted without them.", sys.stderr)
            sentences = [text for text in sentences if not says_nothing(text)]
        if not sentences:
            raise DataError(f"{source}: no sentence; expected one a line")
        if len(trees) != len(sentences):
            raise DataError(f"{name}: {len(trees)} trees but {len(sentences)} sentences")
        for sentence, (tree, line) in zip(sentences, trees, strict=True):
            words, leaves = ascii_words(without_escapes(sentence)), ascii_words(without_escapes(tree.sentence))
            if words != leaves:
                both = f"'{visible(' '.join(leaves))}', not '{visible(' '.join(words))}'"
                raise DataError(f"{name}, line {line}: a tree of other words than its sentence: {both}")
        # A sentence may write brackets as they are.
        return ReferencedText([tree.sentence for tree, _ in trees], [[str(tree) for tree, _ in trees]])

    def evaluate_text(self, params: PyTree, text: ReferencedText, name: str) -> TranslationEvaluation:
        """Score a text as ``text-NAME-DIGEST``."""
        (trees,) = text.references
        symbols = [linearized(tree, self.config.data) for tree in trees_of_texts(trees)]
        nll, tokens = self.scorer.nll(params, text.sources, symbols)
        pairs = [SentencePair(*pair) for pair in zip(text.sources, trees, strict=True)]
        split = f"text-{name}-{digest(trees)[:8]}"
        evaluation = self.evaluator.translated(params, split, pairs, trees, nll, tokens)
        return replace(evaluation, references=text.references)
