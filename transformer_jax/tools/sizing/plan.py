"""The plan of a run for a time budget, and the rules that plans of all tasks share."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.errors import ConfigError

# WSD trained better than a cosine with budgets of 25 s to 10 minutes: experiments/own_text,
# docs/language_models.md.
SCHEDULE = "wsd"
VOCABULARY_SIZE = "tokenizer.vocabulary_size"
SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MIN_UPDATES = 20
# Estimates, before a tokenizer has learned.
TOKENS_PER_WORD = 1.4
CHARACTERS_OF_A_TOKEN = 1.7
# A plan that uses less of its budget says why.
USED = 0.9


class Plan(NamedTuple):
    """Settings by dotted key, the estimated seconds of the run, and a sentence with both.

    ``max_updates``: the number of updates beyond which training seldom helps.

    Every planning function takes the text, the budget in seconds, ``flops`` (floating-point
    operations per second of matrix products on this machine; an update needs six for each parameter
    and token) and ``fixed`` (settings by dotted key that stay). It raises ConfigError when the
    budget is too short for start-up and ``MIN_UPDATES``.
    """

    settings: dict[str, Any]
    seconds: float
    sentence: str
    max_updates: int = 0


def seconds_of(budget: str) -> float:
    """Return 1200.0 for ``20m``. Raises ConfigError unless it is a number with s, m, h or d."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", str(budget).strip())
    if not match or not float(match[1]):
        raise ConfigError("--budget", f"{budget!r} is not a time", "write 90s, 20m, 2h or 1d")
    return float(match[1]) * SECONDS_OF_UNIT[match[2]]


def require_enough(budget: int | float, updates: int, least_seconds: float) -> None:
    """Raise ConfigError if the updates of a budget in seconds are fewer than ``MIN_UPDATES``."""
    if updates < MIN_UPDATES:
        raise ConfigError(
            "--budget",
            f"{budget:.0f} s are too short: start-up, compilation and {MIN_UPDATES} updates take "
            f"about {least_seconds:.0f} s here",
            f"give {max(round(least_seconds / 60 + 0.5), 1)}m or more",
        )


def update_intervals(updates: int, validations: int, fewest_between: int) -> dict[str, int]:
    """Return the settings of a length, with at most this number of validations."""
    # Rounded up: a last validation a few updates after the one before would be useless.
    every = max(-(-updates // validations), min(updates, fewest_between))
    return {
        "training.num_updates": updates,
        "training.evaluate_every": every,
        "training.checkpoint_every": every,
        "training.log_every": min(50, every),
    }


def _time(seconds: float) -> str:
    if seconds >= 4 * 3600:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def minutes_of_this_cpu(seconds: float) -> str:
    """Return the estimated time in words."""
    return f"about {_time(seconds)} of this CPU if it is free"


def left_over(fixed: Mapping[str, Any], budget_seconds: float, seconds: float, epochs: float, max_epochs: int) -> str:
    """Return the part of a sentence on the time that a plan leaves unused, or ""."""
    if seconds >= USED * budget_seconds or fixed.get("training.num_updates"):
        return ""
    left = f"; {_time(budget_seconds - seconds)} of the budget are left over"
    if epochs > max_epochs + 1:
        return f"{left}: the text is so short that {MIN_UPDATES} updates, the minimum, are many epochs"
    return f"{left}: more than {max_epochs} epochs of the same text seldom help"


def of_width(row: Any, rows: Sequence[Any], fixed: Mapping[str, Any]) -> Any:
    """Return a listed size in a fixed width, with a feed-forward layer in proportion.

    The learning rate is the one of the widest listed size that is no wider, for batches of ``row``.
    The number of heads divides the width; a fixed number may need a wider size.
    """
    width, heads = fixed.get("model.d_model", row.d_model), fixed.get("model.num_heads", row.num_heads)
    if "model.d_model" not in fixed:
        # An even size of a head, as rotary positions need.
        width = row.d_model if row.d_model % heads == 0 else -(-row.d_model // (2 * heads)) * 2 * heads
    elif "model.num_heads" not in fixed:
        heads = math.gcd(heads, width)
    if width == row.d_model:
        return row._replace(num_heads=heads)
    widest = max((listed.d_model for listed in rows if listed.d_model <= width), default=rows[0].d_model)
    like = next(listed for listed in rows if listed.d_model == widest)
    rate = like.learning_rate * min(row.tokens_per_update / like.tokens_per_update, 1) ** 0.5
    d_ff = row.d_ff * width // row.d_model
    return row._replace(d_model=width, num_heads=heads, d_ff=d_ff, learning_rate=round(rate, 5))


def without_model(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixed settings by which a size is chosen: not its own."""
    return {key: value for key, value in fixed.items() if not key.startswith("model.")}


def rate_of_peak(fixed: Mapping[str, Any], peak: float, d_model: int, warmup_updates: int) -> float:
    """Return ``optimizer.learning_rate``, which is a factor in ``noam`` (paper, equation 3)."""
    if fixed.get("optimizer.schedule") != "noam":
        return peak
    return float(round(peak * (d_model * fixed.get("optimizer.warmup_updates", warmup_updates)) ** 0.5, 4))


def fitting_heads(fixed: Mapping[str, Any]) -> dict[str, int]:
    """Return a width and a number of heads that fit the fixed one of the two."""
    if "model.num_heads" in fixed:
        return {"model.d_model": 64 * fixed["model.num_heads"]}
    return {"model.num_heads": 1} if "model.d_model" in fixed else {}
