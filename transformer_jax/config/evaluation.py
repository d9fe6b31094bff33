"""Settings of the scores of translations."""

from dataclasses import dataclass, replace

from transformer_jax.config.checks import require_choice
from transformer_jax.config.languages import (
    BLEU_TOKENIZERS,
    WITH_TER_OF_CHARACTERS,
    WITHOUT_SPACES,
    base_language,
    bleu_tokenizer_of,
    counts_words,
    require_tokenizer,
)

SCORES = ("bleu", "bleu_lowercase", "bleu_compounds", "chrf", "ter", "spbleu")
"""What can be asked for, in the order of tables."""

SPBLEU_TOKENIZER = "flores200"


@dataclass(frozen=True)
class EvaluationConfig:
    """Which scores translations get, and what BLEU takes for a word. (Other tasks have none of this.)

    ``metrics``: of ``evaluate``, separated by commas; empty, all but ``spbleu``, ``bleu_compounds`` of German alone, and
    ``ter`` only where it finds words.
    ``bleu_tokenizer``: empty, by the target language; a run keeps the one that it found when it began. ``selection``: the
    metric that selects checkpoints and ends runs that no longer improve; empty, that of the task, but chrF where BLEU has no
    words to count (see ``counts_words``).
    """

    metrics: str = ""
    bleu_tokenizer: str = ""
    selection: str = ""

    def __post_init__(self) -> None:
        require_scores("evaluation.metrics", self.metrics)
        if self.bleu_tokenizer:
            require_choice("evaluation.bleu_tokenizer", self.bleu_tokenizer, BLEU_TOKENIZERS)

    def resolved(self, language: str) -> "EvaluationConfig":
        """The same with the tokenizer and the selection metric for translations into ``language``."""
        tokenizer = self.tokenizer(language)
        by_language = "bleu" if counts_words(tokenizer, language) else "chrf"
        return replace(self, bleu_tokenizer=tokenizer, selection=self.selection or by_language)

    def tokenizer(self, language: str) -> str:
        """Tokenizer of BLEU."""
        return self.bleu_tokenizer or bleu_tokenizer_of(language)

    def scores(self, language: str) -> tuple[str, ...]:
        """Names of the scores of ``evaluate``."""
        base = base_language(language)
        has_ter = base not in WITHOUT_SPACES or base in WITH_TER_OF_CHARACTERS
        makes_sense = {"bleu_compounds": base == "de", "ter": has_ter, "spbleu": False}
        return score_names(self.metrics) or tuple(name for name in SCORES if makes_sense.get(name, True))

    def require_installed(self, language: str, validated: str = "") -> None:
        """Raises ConfigError when a tokenizer of ``metrics``, or of the scores ``validated``, is not installed."""
        require_tokenizer(self.tokenizer(language), "evaluation.bleu_tokenizer")
        if "spbleu" in (*self.scores(language), *score_names(validated), self.selection):
            require_tokenizer(SPBLEU_TOKENIZER, "spbleu")


def score_names(text: str) -> tuple[str, ...]:
    """``"chrf, bleu"`` as ``("bleu", "chrf")``, in the order of tables."""
    named = [name.strip() for name in text.split(",")]
    return tuple(name for name in SCORES if name in named)


def require_scores(key: str, text: str) -> None:
    """Raises ConfigError unless ``text`` is empty or names scores, separated by commas."""
    for name in text.split(",") if text else ():
        require_choice(key, name.strip(), SCORES)


TOKENIZER_KEY = "evaluation.bleu_tokenizer"
"""The setting that decides the figures of one text."""
