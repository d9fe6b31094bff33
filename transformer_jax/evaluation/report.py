"""The scores of translations of a split, and how they were decoded."""

import math
from dataclasses import asdict, dataclass

from transformer_jax.config import DecodingConfig
from transformer_jax.evaluation.scores import LABELS, Scores


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
