"""Settings of decoding."""

from dataclasses import dataclass, replace

from transformer_jax.config.checks import require, require_choice, require_positive

STOPS = ("exact", "first_beams")
DTYPES = ("model", "float32", "float32_exact", "tf32", "bfloat16")
# Logits divided by less are no longer finite.
SMALLEST_TEMPERATURE = 1e-3
LARGEST_SEED = 2**32 - 1


def temperature_problem(temperature: float) -> str:
    """Says of a temperature that is neither 0 nor large enough what would be right."""
    return f"{temperature} must be at least {SMALLEST_TEMPERATURE:g}, or 0, which is greedy"


@dataclass(frozen=True)
class DecodingConfig:
    """Decoding of translations (section 6.1): beam search with the length penalty of Wu et al. 2016.

    ``beam_width`` 1 is greedy search. ``stop``: ``exact`` searches a sentence until no unfinished prefix can still win;
    ``first_beams``, as most toolkits do, until ``beam_width`` hypotheses have finished, which is faster and may miss the best.
    ``diverse_groups``: the beams are so many groups of equal size (Vijayakumar et al. 2018), in each of which a token costs
    ``diversity`` of its log-probability for every beam of the groups before that has just chosen it.
    ``compute_dtype``: precision of the products of decoding and of the loss of a split, one of those of
    ``model.compute_dtype``, or ``model``: that of the model, but float32 on CPUs, which decode faster in it.

    Output is at most source tokens + ``max_extra_tokens``, and the tokens of a prefix that was asked for besides.
    ``batch_tokens``: source token positions, padding included, that a device decodes at once, each with all its beams; 0 is
    4,096 on a CPU and 16,384 elsewhere, in each of the two searches that a single device runs at a time. A longer sentence is
    a batch alone, and a CPU takes at most 160 beams, or 32 sentences of a text of up to 512. A sentence of
    more than ``max_source_tokens`` to translate or to score (a line of a megabyte, a file without line breaks) is refused
    before any is begun: attention would need its square in memory.
    """

    beam_width: int = 4
    length_penalty: float = 0.6
    stop: str = "exact"
    diverse_groups: int = 1
    diversity: float = 0.5
    compute_dtype: str = "model"
    max_extra_tokens: int = 50
    batch_tokens: int = 0
    max_source_tokens: int = 4096

    def __post_init__(self) -> None:
        require_positive("decoding", self, "beam_width", "diverse_groups", "max_extra_tokens", "max_source_tokens")
        require(self.batch_tokens >= 0, "decoding.batch_tokens", "must not be negative; 0 chooses by device")
        require_choice("decoding.stop", self.stop, STOPS)
        require_choice("decoding.compute_dtype", self.compute_dtype, DTYPES)
        require(self.length_penalty >= 0, "decoding.length_penalty", "must not be negative")
        problem = f"{self.diverse_groups} groups do not divide decoding.beam_width={self.beam_width}"
        require(self.beam_width % self.diverse_groups == 0, "decoding.diverse_groups", problem)
        require(self.diversity >= 0, "decoding.diversity", "must not be negative")

    def in_one_group(self, beam_width: int) -> "DecodingConfig":
        """The same with plain beam search of this width."""
        return replace(self, beam_width=beam_width, diverse_groups=1)
