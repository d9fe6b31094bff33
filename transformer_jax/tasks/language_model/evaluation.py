"""The score of a language model on a split of raw text."""

import math
from dataclasses import asdict, dataclass

from transformer_jax.evaluation.report import perplexity


@dataclass(frozen=True)
class LanguageModelEvaluation:
    """One evaluation: sums over a split, or its first ``documents``, divided once, at the end.

    ``nll``: negative log-likelihood in nats of all ``tokens``, the EOS of every document among them. ``num_bytes``: UTF-8 bytes
    of the same text as it is in the file, line feeds included. ``context_length``: the most tokens that the model sees at once,
    with those it predicts; ``stride``: how many of them are new.
    """

    split: str
    nll: float
    correct: float
    tokens: int
    num_bytes: int
    documents: int
    context_length: int
    stride: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Bits of all tokens over bytes of the text.

        The text is scored in the one way in which its tokenizer cuts it: an upper bound of what the model knows.
        """
        return self.nll / math.log(2) / self.num_bytes

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics for the log."""
        return {
            "loss": self.loss,
            "perplexity": perplexity(self.nll, self.tokens),
            "bits_per_byte": self.bits_per_byte,
            "accuracy": self.correct / self.tokens,
        }

    @property
    def outputs(self) -> None:
        """Nothing is generated."""

    @property
    def summary(self) -> str:
        """Metrics for a one-line summary."""
        return f"{self.bits_per_byte:.4f} bits per byte, perplexity {self.metrics['perplexity']:.3f}"

    def to_json(self) -> dict[str, object]:
        """Counts and metrics, as what ``json.dumps`` takes; a number that is not finite becomes null."""
        fields = asdict(self) | self.metrics
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in fields.items()
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and remark of every line of the table."""
        overlap = "no overlap" if self.stride == self.context_length else f"{self.stride} of them new"
        return [
            ("split", self.split, f"{self.documents:,} documents, {self.num_bytes:,} bytes, {self.tokens:,} tokens"),
            ("bits per byte", f"{self.bits_per_byte:.4f}", "of the raw text, line feeds included"),
            ("loss", f"{self.loss:.4f}", "nats per token, no label smoothing"),
            ("perplexity", f"{self.metrics['perplexity']:.3f}", "per token"),
            ("accuracy", f"{self.metrics['accuracy']:.2%}", "of tokens that were the most probable"),
            ("context", f"{self.context_length:,}", f"tokens, {overlap}"),
        ]

    def examples(self, count: int) -> str:
        """Nothing is generated."""
        del count
        return ""
