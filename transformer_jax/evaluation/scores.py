"""BLEU in five variants, chrF and TER with sacreBLEU signatures, and the report of a split."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from types import MappingProxyType
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_jax.config.evaluation import (
    SPBLEU_TOKENIZER,
    SPLITTING_AT_SPACES,
    WITH_TER_OF_CHARACTERS,
    EvaluationConfig,
)
from transformer_jax.config.languages import base_language
from transformer_jax.config.translation import DecodingConfig
from transformer_jax.errors import DataError
from transformer_jax.registry.plugins import with_settings

TOKENIZED_ENDING = " ."
COMPOUND = re.compile(r"(\S)-(\S)")
LABELS = {
    "bleu": "BLEU",
    "bleu_lowercase": "BLEU lower-case",
    "bleu_compounds": "BLEU compounds",
    "bleu_moses": "BLEU Moses",
    "chrf": "chrF",
    "ter": "TER",
    "spbleu": "spBLEU",
}


@dataclass(frozen=True)
class Scores:
    """Corpus scores by name, with sacreBLEU signatures. All but ``ter`` are from 0 to 100.

    - ``bleu``: cased BLEU on the words of sacreBLEU's tokenizer (Post 2018).
    - ``bleu_lowercase``: the same on lower-cased text.
    - ``bleu_compounds``: cased, tokenized by Moses (Koehn et al. 2007), words split at hyphens so
      that a compound counts as three, unsmoothed; presumably the BLEU of table 2 of Vaswani et al.
      2017.
    - ``bleu_moses``: lower-cased, punctuation normalized and tokenized by Moses, unsmoothed, as by
      multi-bleu.perl and in papers on Multi30k (Wu et al. 2021, section 4). docs/evaluation.md
      lists how 13a and Moses differ.
    - ``spbleu``: BLEU on the pieces of FLORES-200 (NLLB Team 2022).
    - ``ter``: edits, including shifts, per hundred words of the reference (Snover et al. 2006).

    ``details`` of ``bleu``, if measured: ``precisions`` of 1- to 4-grams, ``brevity_penalty`` (1:
    none), ``hypothesis_tokens`` and ``reference_tokens`` (of several references the closest in
    length). ``tokenized_endings``: number of hypotheses that end in ``" ."``, a sign of tokenized
    text.
    """

    values: Mapping[str, float]
    signatures: Mapping[str, str]
    details: Mapping[str, Any]
    num_sentences: int
    num_references: int
    tokenized_endings: int

    def to_json(self) -> dict[str, object]:
        """Return a JSON object: ``{"bleu": 41.0, "bleu_signature": "nrefs:1|...", ...}``."""
        signatures = {f"{name}_signature": signature for name, signature in self.signatures.items()}
        counts = {name: getattr(self, name) for name in ("num_sentences", "num_references", "tokenized_endings")}
        return {**self.values, **signatures, **self.details, **counts}

    def rows(self) -> list[tuple[str, str, str]]:
        """Return table rows (name, value, remark)."""
        rows = [(LABELS.get(name, name), f"{value:.2f}", self.signatures[name]) for name, value in self.values.items()]
        if self.details:
            length, wanted = self.details["hypothesis_tokens"], self.details["reference_tokens"]
            lengths = f"{length:,} / {wanted:,} tokens = {length / max(wanted, 1):.3f}"
            rows.append(("precisions", "", " / ".join(f"{precision:.1f}" for precision in self.details["precisions"])))
            rows.append(("brevity penalty", f"{self.details['brevity_penalty']:.3f}", lengths))
        references = "1 reference" if self.num_references == 1 else f"{self.num_references} references"
        rows.append(("sentences", f"{self.num_sentences:,}", f"{references} each"))
        if self.tokenized_endings * 2 > self.num_sentences:
            remark = f'of {self.num_sentences:,} hypotheses end in " .": they look tokenized, but BLEU needs raw text'
            rows.append(("warning", f"{self.tokenized_endings:,}", remark))
        return rows


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    language: str = "en",
    settings: EvaluationConfig | None = None,
    sources: Sequence[str] | None = None,
    parts: Mapping[str, Any] = MappingProxyType({}),
) -> Scores:
    """Score detokenized ``hypotheses`` against raw ``references``: one list, or several.

    ``language`` (ISO 639) is the language of both. It selects the tokenizer and the scores that
    ``settings`` leave open, and the rules of Moses. For an unknown language Moses splits at
    apostrophes. Empty lines count. Metrics of plugins also read ``sources``, and their settings in
    ``parts``. Raises DataError when there is nothing to score or the numbers of lines differ, and
    ConfigError when a tokenizer is not installed.
    """
    settings = settings or EvaluationConfig()
    hypotheses = list(hypotheses)
    lines = [line for line in references if isinstance(line, str)]
    streams = [lines] if len(lines) == len(references) else [list(stream) for stream in references]
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            lines_of = f"{len(stream)} lines in reference {number} of {len(streams)}"
            raise DataError(f"{len(hypotheses)} hypotheses but {lines_of}; line i of both is sentence i")
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses")
    settings.require_installed(language)
    values, signatures, details = {}, {}, {}
    for name in settings.scores(language):
        if name not in LABELS:
            values[name] = float(with_settings("metric", name, parts)(hypotheses, streams, sources))
            signatures[name] = "of a plugin"
            continue
        metric, texts, signature = metric_of(name, settings.tokenizer(language), language), [hypotheses, *streams], ""
        if name in OF_MOSES:
            base, version = base_language(language), metadata.version("sacremoses")
            texts = [OF_MOSES[name](lines, base) for lines in texts]
            form = "hyphens as ##AT##-##AT##" if name == "bleu_compounds" else "its normalization of punctuation"
            signature = f", after Moses ({base}, sacremoses {version}) and {form}"
        score: Any = metric.corpus_score(texts[0], texts[1:])
        values[name], signatures[name] = float(score.score), f"{metric.get_signature()}{signature}"
        if name == "bleu":
            details = {
                "precisions": tuple(map(float, score.precisions)),
                "brevity_penalty": float(score.bp),
                "hypothesis_tokens": int(score.sys_len),
                "reference_tokens": int(score.ref_len),
            }
    return Scores(
        values,
        signatures,
        details,
        num_sentences=len(hypotheses),
        num_references=len(streams),
        tokenized_endings=sum(line.rstrip().endswith(TOKENIZED_ENDING) for line in hypotheses),
    )


def metric_of(name: str, tokenizer: str, language: str) -> Metric:
    # force: no warning about tokenized text; Scores.rows reports it.
    if name == "chrf":
        return CHRF()
    if name == "ter":
        # Chinese and Japanese characters count as words, unless the tokenizer splits at spaces.
        splits = base_language(language) in WITH_TER_OF_CHARACTERS and tokenizer not in SPLITTING_AT_SPACES
        return TER(normalized=splits, asian_support=splits)
    if name in OF_MOSES:
        return BLEU(lowercase=name == "bleu_moses", tokenize="none", smooth_method="none", force=True)
    tokenizer = SPBLEU_TOKENIZER if name == "spbleu" else tokenizer
    return BLEU(lowercase=name == "bleu_lowercase", tokenize=tokenizer, force=True)


def with_split_compounds(lines: Sequence[str], language: str) -> list[str]:
    """Return tokens of Moses, split at hyphens: ``T-Shirt.`` gives ``T ##AT##-##AT## Shirt .``."""
    # This import takes a third of a second.
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(language)
    return [COMPOUND.sub(r"\1 ##AT##-##AT## \2", moses.tokenize(line, return_str=True)) for line in lines]


def with_normal_punctuation(lines: Sequence[str], language: str) -> list[str]:
    """Return tokens of Moses, normalized before: ``„Halt!“`` gives ``&quot; Halt ! &quot;``."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, moses = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [moses.tokenize(normalizer.normalize(line), return_str=True) for line in lines]


OF_MOSES = {"bleu_compounds": with_split_compounds, "bleu_moses": with_normal_punctuation}


@dataclass(frozen=True)
class EvaluationReport:
    """Scores of one split, and how it was decoded.

    ``loss``: nats per target token without label smoothing, and ``perplexity`` its exponential.
    ``tokens_per_second``: tokens of the translations, without other samples, over the wall time of
    decoding, with compilation. ``compute_dtype``: precision of matrix products.
    """

    split: str
    scores: Scores
    loss: float
    perplexity: float
    tokens_per_second: float
    num_sentences: int
    decoding: DecodingConfig
    compute_dtype: str

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"scores": self.scores.to_json()}

    def headline(self) -> dict[str, float]:
        """Return the metrics for the log."""
        return {
            **self.scores.values,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "search_tokens_per_second": self.tokens_per_second,
        }

    @property
    def signature(self) -> str:
        """The signature of BLEU, whose tokenizer depends on the language."""
        signature = self.scores.signatures.get("bleu", "")
        return signature and f"BLEU {signature}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return table rows (name, value, remark)."""
        by = self.decoding
        search = by.search_name + f", length penalty {by.length_penalty:g}, stop {by.stop}" * (by.beam_width > 1)
        search += f", search {by.search}" * (by.search != "beam")
        how = f"generated, {search}, at most source + {by.max_extra_tokens}, {self.compute_dtype}"
        return [
            *self.scores.rows(),
            ("loss", f"{self.loss:.4f}", "nats per target token, no label smoothing"),
            ("perplexity", f"{self.perplexity:.3f}", "per target token"),
            ("tokens/s", f"{self.tokens_per_second:,.0f}", how),
        ]
