"""The settings that decide which text the validations of a run score."""

from collections.abc import Sequence
from typing import Any

from transformer_jax.config import ConfigError, ExperimentConfig, flatten
from transformer_jax.config.evaluation import TOKENIZER_KEY

# Settings that decide which text a validation scores, and how; a generated validation split depends on no seed.
SCORED_TEXT = frozenset(
    {
        "data.source",
        "data.directory",
        "data.name",
        "data.documents",
        "data.source_language",
        "data.target_language",
        "data.generated_words",
        "data.validation_split",
        "data.validation",
        "data.evaluation_stride",
        "training.validation_sentences",
        TOKENIZER_KEY,
    }
)
# Further ones if a part of the training text is held out for validation; a seed chooses pairs, but not documents.
HELD_OUT_TEXT = frozenset({"seed", "data.seed", "data.train", "data.train_split", "data.held_out"})


def settings_of_scored_text(configs: Sequence[ExperimentConfig]) -> frozenset[str]:
    """The settings that decide which text validations of these runs score, and how."""
    held_out = [config for config in configs if _holds_out(config.data)]
    if not held_out:
        return SCORED_TEXT
    same_seed = not held_out[0].data.has_pairs or len({config.data_seed for config in configs}) == 1
    return SCORED_TEXT | HELD_OUT_TEXT - ({"seed", "data.seed"} if same_seed else set())


def _holds_out(data: Any) -> bool:
    """Whether validations score a part of the training text."""
    if not getattr(data, "held_out", 0):
        return False
    if data.source == "mixture":
        return any(map(_holds_out, data.corpora.values()))
    return data.source == "text" and not data.validation and (data.has_pairs or bool(data.train))


def require_same_text(configs: Sequence[ExperimentConfig], ignored: frozenset[str] = frozenset()) -> None:
    """Raises ConfigError if runs with these settings are scored on different text; ``ignored`` settings may differ."""
    found = [flatten(config) for config in configs]
    differing = {key for each in found for key, value in each.items() if value != found[0].get(key)}
    if keys := sorted(differing & settings_of_scored_text(configs) - ignored):
        remedy = "use one value"
        if keys == ["seed"]:
            remedy = "set data.seed, which chooses the held-out pairs; for a study that has begun, Sweep(are_seeds_paired=True)"
        raise ConfigError(f"runs with different {', '.join(keys)} are not scored on the same text; {remedy}")
