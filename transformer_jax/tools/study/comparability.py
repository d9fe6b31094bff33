"""Whether scores of runs are comparable, by the settings in which the runs differ."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transformer_jax.config import ConfigError, ExperimentConfig, Metric, flatten
from transformer_jax.config.evaluation import TOKENIZER_KEY

# Settings that decide which text a validation scores, and how. A generated validation split
# depends on no seed.
SCORED_TEXT = frozenset(
    "data.source data.directory data.name data.documents data.source_language data.target_language data.generated_words "
    f"data.validation_split data.validation data.evaluation_stride training.validation_sentences {TOKENIZER_KEY}".split()
)
# Further ones if a part of the training text is held out for validation. A seed chooses pairs, but
# not documents.
HELD_OUT_TEXT = frozenset({"seed", "data.seed", "data.train", "data.train_split", "data.held_out"})


def differing_settings(configs: Sequence[ExperimentConfig]) -> dict[str, list[str]]:
    """Return the values of the settings that differ, by key: ``{"model.dropout": ["0.1", "0.3"]}``.

    Values are written as after ``--config.KEY=``, an empty value as ``''``, files below the current
    folder without it. The value of a setting that a kind of model lacks is ``""``.
    """
    here = f"{Path.cwd()}/"
    runs = [{key: str(value).replace(here, "") or "''" for key, value in flatten(config).items()} for config in configs]
    values = {key: [settings.get(key, "") for settings in runs] for key in sorted(set().union(*runs))}
    return {key: texts for key, texts in values.items() if len(set(texts)) > 1}


def settings_of_scored_text(configs: Sequence[ExperimentConfig]) -> frozenset[str]:
    """Return the settings that decide which text validations of these runs score, and how."""
    held_out = [config for config in configs if _holds_out(config.data)]
    if not held_out:
        return SCORED_TEXT
    same_seed = not held_out[0].data.has_pairs or len({config.data_seed for config in configs}) == 1
    return SCORED_TEXT | HELD_OUT_TEXT - ({"seed", "data.seed"} if same_seed else set())


def _holds_out(data: Any) -> bool:
    """Return whether validations score a part of the training text."""
    if not getattr(data, "held_out", 0):
        return False
    if data.source == "mixture":
        return any(map(_holds_out, data.corpora.values()))
    return data.source == "text" and not data.validation and (data.has_pairs or bool(data.train))


def require_same_text(configs: Sequence[ExperimentConfig], ignored: frozenset[str] = frozenset()) -> None:
    """Raise ConfigError if runs differ in a setting of their text that is not ``ignored``."""
    if keys := [key for key in differing_settings(configs) if key in settings_of_scored_text(configs) - ignored]:
        remedy = "use one value"
        if keys == ["seed"]:
            remedy = "set data.seed, which chooses the held-out pairs, or, if the study has begun, Sweep(are_seeds_paired=True)"
        raise ConfigError(f"runs with different {', '.join(keys)} are not scored on the same text", remedy=remedy)


def require_comparable(metric: Metric, differ: Iterable[str], settings: ExperimentConfig) -> None:
    """Raise ConfigError if runs that ``differ`` in settings cannot be compared by the metric."""
    differ = [*differ]
    if changed := metric.changed_by(differ):
        others = [
            f"{other.key} (with {other.needs})" if other.needs else other.key
            for other in settings.metrics
            if not other.changed_by(differ)
        ]
        remedy = f"take {' or '.join(others)}" if others else "leave them equal"
        raise ConfigError(
            "metric", f"{metric.key} is not comparable between runs that differ in {', '.join(changed)}", remedy
        )


def different_text(configs: Sequence[ExperimentConfig]) -> list[str]:
    """Return a warning unless all runs were scored on the same text by the same measure."""
    if len({config.task for config in configs}) > 1:
        return ["The runs have different tasks, so their scores are not comparable. Tasks are listed separately."]
    differing = differing_settings(configs)
    incomparable = {key for config in configs for key in config.selection.changed_by(differing)}
    deciding = settings_of_scored_text(configs) | incomparable
    differ = [key for key in differing if key in deciding]
    words = "their scores are not comparable, so the order here has no meaning."
    if differ == ["training.validation_sentences"]:
        words = "compare the scores of the whole split (transformer-jax evaluate RUN --split=validation), not of validations."
    return [f"The runs differ in {', '.join(differ)}: {words}"] if differ else []
