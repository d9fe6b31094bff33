"""Log-probabilities of the tokens of a given text."""

import math
from typing import NamedTuple


class TokenScores(NamedTuple):
    """Tokens of a text, EOS included, and the natural logarithm of the probability of each after those before it."""

    pieces: list[str]
    log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """That of the whole text."""
        return sum(self.log_probs)

    @property
    def perplexity(self) -> float:
        """Of a token: exp(-log-probability / number of tokens)."""
        return math.exp(-self.log_prob / len(self.log_probs))
