"""The one scorer: BLEU in three forms, chrF and TER of a list of translations, each with the signature that says how."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_jax.config.errors import DataError

TOKENIZED_ENDING = " ."
COMPOUND = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Scores:
    """Corpus scores, from 0 to 100 but for TER; a signature belongs to the score before it.

    ``bleu`` is sacreBLEU's default (Post 2018): cased, tokenized by ``13a``. ``bleu_lowercase`` is the same on
    lower-cased text, as the "tokenized lower-case BLEU" of the Multi30k literature but for its tokenizer, Moses'.
    ``bleu_compounds`` is as table 2 of the paper is said to be measured: tokenized by Moses (Koehn et al. 2007), cased, words
    split at their hyphens, which counts each compound as three words, unsmoothed. Compare like with like.
    (docs/evaluation.md lists how 13a and Moses differ.)
    ``ter`` (Snover et al. 2006) is edits, shifts among them, per hundred words of the reference: less is better.
    ``precisions`` are of 1- to 4-grams; ``brevity_penalty`` (1 is none) and the lengths in tokens of 13a belong to
    ``bleu``; with several references the length is that of the closest. ``tokenized_endings`` counts hypotheses
    ending in ``" ."``: a sign of text not detokenized.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    bleu_lowercase: float
    bleu_lowercase_signature: str
    bleu_compounds: float
    bleu_compounds_signature: str
    ter: float
    ter_signature: str
    precisions: tuple[float, float, float, float]
    brevity_penalty: float
    hypothesis_tokens: int
    reference_tokens: int
    num_sentences: int
    num_references: int
    tokenized_endings: int

    def to_json(self) -> dict[str, object]:
        """Returns the fields as what ``json.dumps`` takes."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns (name, value, remark) for every line of the table."""
        ratio = self.hypothesis_tokens / max(self.reference_tokens, 1)
        lengths = f"{self.hypothesis_tokens:,} / {self.reference_tokens:,} tokens = {ratio:.3f}"
        references = "1 reference" if self.num_references == 1 else f"{self.num_references} references"
        rows = [
            ("BLEU", f"{self.bleu:.2f}", self.bleu_signature),
            ("BLEU lower-case", f"{self.bleu_lowercase:.2f}", self.bleu_lowercase_signature),
            ("BLEU compounds", f"{self.bleu_compounds:.2f}", self.bleu_compounds_signature),
            ("chrF", f"{self.chrf:.2f}", self.chrf_signature),
            ("TER", f"{self.ter:.2f}", self.ter_signature),
            ("precisions", "", " / ".join(f"{precision:.1f}" for precision in self.precisions)),
            ("brevity penalty", f"{self.brevity_penalty:.3f}", lengths),
            ("sentences", f"{self.num_sentences:,}", f"{references} each"),
        ]
        if self.tokenized_endings * 2 > self.num_sentences:
            remark = f'of {self.num_sentences:,} hypotheses end in " .": they look tokenized, and BLEU wants raw text'
            rows.append(("warning", f"{self.tokenized_endings:,}", remark))
        return rows


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]], language: str = "en"
) -> Scores:
    """Scores detokenized ``hypotheses`` against raw ``references``: one list, or several ("streams") each in the same
    order, in ``language`` (ISO 639-1), for Moses; it treats one that it does not know as English without abbreviations.

    Every line counts, an empty hypothesis or reference too. Raises DataError when there is nothing to score and when
    the numbers of lines differ.
    """
    hypotheses = list(hypotheses)
    streams = _reference_streams(references)
    _check_lines(hypotheses, streams)
    # force: no warning in a log; Scores.rows reports it instead
    bleu, bleu_lowercase, chrf, ter = BLEU(force=True), BLEU(lowercase=True, force=True), CHRF(), TER()
    bleu_compounds = BLEU(tokenize="none", smooth_method="none", force=True)
    bleu_score = bleu.corpus_score(hypotheses, streams)
    lowercase_score = bleu_lowercase.corpus_score(hypotheses, streams)
    split, *split_streams = (with_split_compounds(lines, language) for lines in (hypotheses, *streams))
    compounds_score = bleu_compounds.corpus_score(split, split_streams)
    chrf_score = chrf.corpus_score(hypotheses, streams)
    ter_score = ter.corpus_score(hypotheses, streams)
    first, second, third, fourth = bleu_score.precisions
    return Scores(
        bleu=float(bleu_score.score),
        bleu_signature=str(bleu.get_signature()),
        chrf=float(chrf_score.score),
        chrf_signature=str(chrf.get_signature()),
        bleu_lowercase=float(lowercase_score.score),
        bleu_lowercase_signature=str(bleu_lowercase.get_signature()),
        bleu_compounds=float(compounds_score.score),
        bleu_compounds_signature=f"{bleu_compounds.get_signature()}, after {_splitting(language)}",
        ter=float(ter_score.score),
        ter_signature=str(ter.get_signature()),
        precisions=(float(first), float(second), float(third), float(fourth)),
        brevity_penalty=float(bleu_score.bp),
        hypothesis_tokens=int(bleu_score.sys_len),
        reference_tokens=int(bleu_score.ref_len),
        num_sentences=len(hypotheses),
        num_references=len(streams),
        tokenized_endings=sum(line.rstrip().endswith(TOKENIZED_ENDING) for line in hypotheses),
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
