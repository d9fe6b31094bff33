"""Settings of the scores of translations."""

from dataclasses import dataclass, replace

from transformer_jax.config.checks import check_settings, setting
from transformer_jax.config.languages import (
    BLEU_TOKENIZERS,
    WITH_TER_OF_CHARACTERS,
    WITHOUT_SPACES,
    base_language,
    bleu_tokenizer_of,
    counts_words,
    require_tokenizer,
)
from transformer_jax.config.tasks import SCORES, score_names

SPBLEU_TOKENIZER = "flores200"
TOKENIZER_KEY = "evaluation.bleu_tokenizer"
"""The setting that changes the scores of the same text."""


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
        """Return these settings with the tokenizer and selection metric for translations into ``language``."""
        tokenizer = self.tokenizer(language)
        by_language = "bleu" if counts_words(tokenizer, language) else "chrf"
        return replace(self, bleu_tokenizer=tokenizer, selection=self.selection or by_language)

    def tokenizer(self, language: str) -> str:
        """Return the tokenizer of BLEU."""
        return self.bleu_tokenizer or bleu_tokenizer_of(language)

    def scores(self, language: str) -> tuple[str, ...]:
        """Return the names of the scores of ``evaluate``."""
        base = base_language(language)
        has_ter = base not in WITHOUT_SPACES or base in WITH_TER_OF_CHARACTERS
        makes_sense = {"bleu_compounds": base == "de", "ter": has_ter, "bleu_moses": False, "spbleu": False}
        return score_names(self.metrics) or tuple(name for name in SCORES if makes_sense.get(name, True))

    def require_installed(self, language: str, validated: str = "") -> None:
        """Raise ConfigError when a tokenizer for ``metrics``, or for the scores in ``validated``, is not installed."""
        require_tokenizer(self.tokenizer(language), TOKENIZER_KEY)
        if "spbleu" in (*self.scores(language), *score_names(validated), self.selection):
            require_tokenizer(SPBLEU_TOKENIZER, "spbleu")
