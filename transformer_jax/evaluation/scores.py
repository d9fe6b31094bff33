"""Scores of translations: BLEU in four forms, chrF and TER, each with its signature, and the report of a split."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_jax.config.errors import DataError
from transformer_jax.config.evaluation import SPBLEU_TOKENIZER, EvaluationConfig
from transformer_jax.config.languages import SPLITTING_AT_SPACES, WITH_TER_OF_CHARACTERS, base_language
from transformer_jax.config.translation import DecodingConfig

TOKENIZED_ENDING = " ."
COMPOUND = re.compile(r"(\S)-(\S)")
LABELS = {
    "bleu": "BLEU",
    "bleu_lowercase": "BLEU lower-case",
    "bleu_compounds": "BLEU compounds",
    "chrf": "chrF",
    "ter": "TER",
    "spbleu": "spBLEU",
}


@dataclass(frozen=True)
class Scores:
    """Corpus scores by name, from 0 to 100 but for TER, each with the signature that says how it was measured.

    ``bleu`` is sacreBLEU's (Post 2018): cased, on the words of its tokenizer. ``bleu_lowercase`` is the same on
    lower-cased text, as the "tokenized lower-case BLEU" of the Multi30k literature but for its tokenizer, Moses'.
    ``bleu_compounds`` is as table 2 of the paper is said to be measured: tokenized by Moses (Koehn et al. 2007), cased, words
    split at their hyphens, which counts each compound as three words, unsmoothed. Compare like with like.
    (docs/evaluation.md lists how 13a and Moses differ.) ``spbleu`` is BLEU on the pieces of FLORES-200 (NLLB Team 2022).
    ``ter`` (Snover et al. 2006) is edits, shifts among them, per hundred words of the reference: less is better.
    ``details`` are of ``bleu``, where that was measured: ``precisions`` of 1- to 4-grams, ``brevity_penalty`` (1 is none),
    ``hypothesis_tokens`` and ``reference_tokens``; with several references the length of the closest counts.
    ``tokenized_endings`` counts hypotheses ending in ``" ."``: a sign of text not detokenized.
    """

    values: Mapping[str, float]
    signatures: Mapping[str, str]
    details: Mapping[str, Any]
    num_sentences: int
    num_references: int
    tokenized_endings: int

    def to_json(self) -> dict[str, object]:
        """Returns one object that ``json.dumps`` takes: ``{"bleu": 41.0, "bleu_signature": "nrefs:1|...", ...}``."""
        signatures = {f"{name}_signature": signature for name, signature in self.signatures.items()}
        counts = {name: getattr(self, name) for name in ("num_sentences", "num_references", "tokenized_endings")}
        return {**self.values, **signatures, **self.details, **counts}

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns (name, value, remark) for every line of the table."""
        rows = [(LABELS[name], f"{value:.2f}", self.signatures[name]) for name, value in self.values.items()]
        if self.details:
            found, wanted = self.details["hypothesis_tokens"], self.details["reference_tokens"]
            lengths = f"{found:,} / {wanted:,} tokens = {found / max(wanted, 1):.3f}"
            rows.append(("precisions", "", " / ".join(f"{each:.1f}" for each in self.details["precisions"])))
            rows.append(("brevity penalty", f"{self.details['brevity_penalty']:.3f}", lengths))
        references = "1 reference" if self.num_references == 1 else f"{self.num_references} references"
        rows.append(("sentences", f"{self.num_sentences:,}", f"{references} each"))
        if self.tokenized_endings * 2 > self.num_sentences:
            remark = f'of {self.num_sentences:,} hypotheses end in " .": they look tokenized, and BLEU wants raw text'
            rows.append(("warning", f"{self.tokenized_endings:,}", remark))
        return rows


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    language: str = "en",
    settings: EvaluationConfig | None = None,
) -> Scores:
    """Scores detokenized ``hypotheses`` against raw ``references``: one list, or several ("streams") each in the same order.

    ``language`` (ISO 639), of both texts, decides what ``settings`` leave open, and how Moses tokenizes, which treats one
    that it does not know as English without abbreviations. Every line counts, an empty hypothesis or reference too.

    Raises DataError when there is nothing to score and when the numbers of lines differ, ConfigError when a tokenizer is not
    installed.
    """
    settings = settings or EvaluationConfig()
    hypotheses = list(hypotheses)
    streams = _reference_streams(references)
    _check_lines(hypotheses, streams)
    settings.require_installed(language)
    values, signatures, details = {}, {}, {}
    for name in settings.scores(language):
        metric = metric_of(name, settings.tokenizer(language), language)
        texts = [hypotheses, *streams]
        if name == "bleu_compounds":
            texts = [with_split_compounds(lines, base_language(language)) for lines in texts]
        found: Any = metric.corpus_score(texts[0], texts[1:])
        values[name], signatures[name] = float(found.score), str(metric.get_signature())
        if name == "bleu_compounds":
            signatures[name] += f", after {_splitting(base_language(language))}"
        if name == "bleu":
            details = {
                "precisions": tuple(map(float, found.precisions)),
                "brevity_penalty": float(found.bp),
                "hypothesis_tokens": int(found.sys_len),
                "reference_tokens": int(found.ref_len),
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
    """sacreBLEU's metric of that name for text in ``language``."""
    # force: no warning in a log; Scores.rows reports it instead
    if name == "chrf":
        return CHRF()
    if name == "ter":
        # Chinese and Japanese characters count as words, unless words are what spaces separate.
        splits = base_language(language) in WITH_TER_OF_CHARACTERS and tokenizer not in SPLITTING_AT_SPACES
        return TER(normalized=splits, asian_support=splits)
    if name == "bleu_compounds":
        return BLEU(tokenize="none", smooth_method="none", force=True)
    return BLEU(
        lowercase=name == "bleu_lowercase", tokenize=SPBLEU_TOKENIZER if name == "spbleu" else tokenizer, force=True
    )


def with_split_compounds(lines: Sequence[str], language: str) -> list[str]:
    """Tokens of Moses, words split at their hyphens: ``ein T-Shirt.`` gives ``ein T ##AT##-##AT## Shirt .``."""
    # A third of a second, for scores alone.
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(language)
    return [COMPOUND.sub(r"\1 ##AT##-##AT## \2", moses.tokenize(line, return_str=True)) for line in lines]


def _splitting(language: str) -> str:
    return f"Moses ({language}, sacremoses {metadata.version('sacremoses')}) and hyphens as ##AT##-##AT##"


def _reference_streams(references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    lines = [line for line in references if isinstance(line, str)]
    if len(lines) == len(references):
        return [lines]
    return [list(stream) for stream in references]


def _check_lines(hypotheses: list[str], streams: list[list[str]]) -> None:
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(stream)} lines in reference {number} of {len(streams)}; "
                "line i of each must be the same sentence"
            )
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses")


def perplexity(nll_sum: float, token_count: int | float) -> float:
    """Returns ``exp(nll_sum / token_count)``; nats, unsmoothed, EOS counted as a token; ``inf`` where that overflows.

    Raises ValueError when there are no tokens. It is per token of the run's vocabulary, so it compares runs of one
    tokenizer only (table 3 of the paper says "per wordpiece").
    """
    if token_count <= 0:
        raise ValueError(f"perplexity of {token_count} tokens is not defined")
    try:
        return math.exp(nll_sum / token_count)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class EvaluationReport:
    """Scores of one split, and how it was decoded.

    ``loss`` is nats per target token without label smoothing, ``perplexity`` its exponential; ``tokens_per_second``
    counts generated target tokens over the wall time of decoding, compilation included; ``compute_dtype`` is the
    precision of the products of all of that.
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
        """Returns the nested fields in types that ``json.dumps`` accepts; a number that is not finite becomes null."""
        fields = asdict(self) | {"scores": self.scores.to_json()}
        return fields | {
            name: None for name, value in fields.items() if isinstance(value, float) and not math.isfinite(value)
        }

    def headline(self) -> dict[str, float]:
        """Returns the metrics for the log."""
        return {
            **self.scores.values,
            "loss": self.loss,
            "perplexity": self.perplexity,
            "search_tokens_per_second": self.tokens_per_second,
        }

    def line(self) -> str:
        """Returns the metrics for a one-line summary, and the signature of BLEU: what differs by language is in it."""
        scores = (f"{LABELS[name]} {value:.2f}" for name, value in self.scores.values.items())
        signature = self.scores.signatures.get("bleu", "")
        remark = f"; BLEU {signature}" if signature else ""
        return f"{', '.join(scores)}, perplexity {self.perplexity:.3f}{remark}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns (name, value, remark) for every line of the table."""
        how = f"beam {self.decoding.beam_width}, length penalty {self.decoding.length_penalty:g}, stop {self.decoding.stop}"
        if self.decoding.diverse_groups > 1:
            how += f", {self.decoding.diverse_groups} groups with diversity {self.decoding.diversity:g}"
        search = "greedy" if self.decoding.beam_width == 1 else how
        most = f"source + {self.decoding.max_extra_tokens}"
        return [
            ("split", self.split, f"{self.num_sentences:,} sentences, none left out"),
            *self.scores.rows(),
            ("loss", f"{self.loss:.4f}", "nats per target token, no label smoothing"),
            ("perplexity", f"{self.perplexity:.3f}", "per target token"),
            (
                "tokens/s",
                f"{self.tokens_per_second:,.0f}",
                f"generated, {search}, at most {most}, {self.compute_dtype}",
            ),
        ]
