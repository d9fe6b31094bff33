"""Options of one translation, besides the settings of the run."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, TypedDict

from transformer_jax.config import ConfigError, DecodingConfig
from transformer_jax.config.checks import LARGEST, LARGEST_SEED
from transformer_jax.config.data import SMALLEST_TEMPERATURE

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "epsilon")
TRANSLATION_OPTIONS = ("n_best", "prefix", *SAMPLING_OPTIONS, "seed")
BOUNDS_OF_OPTIONS = {
    "n_best": (1, LARGEST),
    "seed": (0, LARGEST_SEED),
    "top_k": (1, LARGEST),
    "top_p": (1e-6, 1),
    "epsilon": (0, 1),
}


class TranslationOptions(TypedDict, total=False):
    """Options of a translation, besides the settings and the number of results (``n_best``)."""

    prefix: str
    temperature: float
    top_k: int
    top_p: float
    epsilon: float
    seed: int


def require_bounds(name: str, value: Any) -> None:
    """Raise ConfigError if an option is outside its bounds."""
    lowest, highest = BOUNDS_OF_OPTIONS[name]
    if not isinstance(value, Integral) and name not in ("top_p", "epsilon"):
        raise ConfigError(f"--{name}", f"{value!r} must be a whole number")
    if not (lowest <= value <= highest):
        raise ConfigError(f"--{name}", f"{value} must be from {lowest:,} to {highest:,}")


def sampling_of(decoding: DecodingConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling ``options`` of a translation, none of them for beam search.

    Raises ConfigError for an option outside its bounds, or one that the decoding does not use.
    """
    for name in BOUNDS_OF_OPTIONS:
        if name in options:
            require_bounds(name, options[name])
    sampling = {name: options[name] for name in SAMPLING_OPTIONS if name in options}
    if sampling:
        temperature = sampling.get("temperature", 1)
        # In this form NaN is refused too.
        if not (temperature == 0 or temperature >= SMALLEST_TEMPERATURE):
            problem = f"{temperature} must be at least {SMALLEST_TEMPERATURE:g}, or 0 for greedy decoding"
            raise ConfigError("--temperature", problem)
        if options.get("prefix"):
            raise ConfigError("--prefix", "beam search continues a prefix, sampling does not", "leave out one of them")
        return sampling
    if "seed" in options:
        raise ConfigError("--seed", "beam search has no random numbers", "add --temperature=1, or leave it out")
    number, width = options.get("n_best", 1), decoding.beam_width
    if number > width:
        raise ConfigError("--n_best", f"{number} is more than decoding.beam_width={width}")
    return {}
