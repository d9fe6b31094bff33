"""Metrics of validations, and settings of the scores of translations."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from transformer_jax.config.checks import check_settings, require, setting
from transformer_jax.config.languages import (
    BLEU_TOKENIZERS,
    WITH_TER_OF_CHARACTERS,
    WITHOUT_SPACES,
    base_language,
    bleu_tokenizer_of,
    counts_words,
    require_tokenizer,
)
from transformer_jax.config.plugins import names_of, registered

SCORES = ("bleu", "bleu_lowercase", "bleu_compounds", "bleu_moses", "chrf", "ter", "spbleu")
"""Scores of translations, in table order."""
SPBLEU_TOKENIZER = "flores200"
TOKENIZER_KEY = "evaluation.bleu_tokenizer"
"""The setting that changes the scores of the same text."""


class Metric(NamedTuple):
    """A metric of validations.

    ``title``: name in tables, if not ``name`` in words. ``digits``: decimals that distinguish runs.
    ``needs``: the setting, if any, that enables it. ``defined_by``: settings, or blocks of them, that change what it measures:
    runs that differ in them are not comparable by it, as by a loss per token where tokenizers differ.
    """

    name: str
    direction: Literal["maximize", "minimize"]
    title: str = ""
    digits: int = 4
    needs: str = ""
    defined_by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.title or self.name.replace("_", " ")

    def text(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    @property
    def key(self) -> str:
        """The name in the log of a run: ``validation/bleu``."""
        return f"validation/{self.name}"

    def changed_by(self, keys: Iterable[str]) -> list[str]:
        """The settings among ``keys`` that change what it measures."""
        return [key for key in keys if any(f"{key}.".startswith(f"{each}.") for each in self.defined_by)]

    def value_in(self, metrics: Mapping[str, float]) -> float:
        """Its value among the ``metrics`` of an evaluation; raises ConfigError if they lack it."""
        problem = f"the evaluation has no {self.name}; choose one of {', '.join(metrics)}"
        require(self.name in metrics, "evaluation.selection", problem)
        return metrics[self.name]

    def is_better(self, value: float, than: float) -> bool:
        return value > than if self.direction == "maximize" else value < than

    def best_step(self, values: Mapping[int, float]) -> int:
        """The step with the best value, the newest among equal ones; NaN is the worst."""
        sign = 1 if self.direction == "maximize" else -1
        return max(values, key=lambda step: (not math.isnan(values[step]), sign * values[step], step))


@dataclass(frozen=True)
class EvaluationConfig:
    """Scores of translations, and the tokenizer of BLEU; other tasks only read ``selection``.

    A run keeps the tokenizer and the selection metric with which it began.
    """

    metrics: str = setting(
        "",
        "Scores of evaluate, separated by commas; empty: all but bleu_moses and spbleu, compounds only for German, TER only "
        "for languages with words.",
        choices=SCORES,
        plugin="metric",
        several=True,
        changeable=True,
    )
    bleu_tokenizer: str = setting(
        "",
        "sacreBLEU's tokenizer; empty: by the target language (13a; zh; ja-mecab and ko-mecab if installed, else "
        "flores200 if its model is here, else char).",
        choices=BLEU_TOKENIZERS,
        changeable=True,
    )
    selection: str = setting(
        "",
        "Metric that selects checkpoints and ends runs without improvement; empty: the metric of the task, but chrf "
        "for languages where BLEU finds no words.",
    )

    def __post_init__(self) -> None:
        check_settings("evaluation", self)

    def resolved(self, language: str) -> "EvaluationConfig":
        """These settings with the tokenizer and selection metric for translations into ``language``."""
        tokenizer = self.tokenizer(language)
        by_language = "bleu" if counts_words(tokenizer, language) else "chrf"
        return replace(self, bleu_tokenizer=tokenizer, selection=self.selection or by_language)

    def tokenizer(self, language: str) -> str:
        """The tokenizer of BLEU."""
        return self.bleu_tokenizer or bleu_tokenizer_of(language)

    def scores(self, language: str) -> tuple[str, ...]:
        """The names of the scores of ``evaluate``."""
        base = base_language(language)
        has_ter = base not in WITHOUT_SPACES or base in WITH_TER_OF_CHARACTERS
        makes_sense = {"bleu_compounds": base == "de", "ter": has_ter, "bleu_moses": False, "spbleu": False}
        return score_names(self.metrics) or tuple(name for name in SCORES if makes_sense.get(name, True))

    def require_installed(self, language: str, validated: str = "") -> None:
        """Raises ConfigError when a tokenizer for ``metrics``, or for the scores in ``validated``, is not installed."""
        require_tokenizer(self.tokenizer(language), "evaluation.bleu_tokenizer")
        if "spbleu" in (*self.scores(language), *score_names(validated), self.selection):
            require_tokenizer(SPBLEU_TOKENIZER, "spbleu")


def score_names(text: str) -> tuple[str, ...]:
    """``"chrf, bleu"`` as ``("bleu", "chrf")``, in table order; metrics of plugins follow."""
    named = [name.strip() for name in text.split(",")]
    return tuple(name for name in (*SCORES, *names_of("metric")) if name in named)


def metrics_of_plugins() -> tuple[Metric, ...]:
    """Registered scores of translations; one is minimized if its function or class says so, ``direction = "minimize"``."""
    made = registered("metric").items()
    return tuple(Metric(name, getattr(each, "direction", "maximize"), digits=2) for name, each in made)
