"""Codes of languages."""

from pathlib import Path

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
TWO_LETTERS = {"jpn": "ja", "zho": "zh", "cmn": "zh", "yue": "zh", "wuu": "zh", "kor": "ko", "tha": "th", "khm": "km"}
TWO_LETTERS |= {"lao": "lo", "mya": "my", "bod": "bo", "dzo": "dz"}
# ... and of the languages for which Moses has rules.
TWO_LETTERS |= {"asm": "as", "ben": "bn", "cat": "ca", "ces": "cs", "deu": "de", "ell": "el", "eng": "en", "spa": "es"}
TWO_LETTERS |= {"est": "et", "fin": "fi", "fra": "fr", "gle": "ga", "guj": "gu", "hin": "hi", "hun": "hu", "isl": "is"}
TWO_LETTERS |= {"ita": "it", "kan": "kn", "lit": "lt", "lvs": "lv", "mal": "ml", "mar": "mr", "nld": "nl"}
TWO_LETTERS |= {"ory": "or", "pan": "pa", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk", "slv": "sl"}
TWO_LETTERS |= {"swe": "sv", "tam": "ta", "tel": "te"}

WITHOUT_SPACES = frozenset(["ja", "zh", "th", "km", "lo", "my", "bo", "dz"])


def language_of_file(name: str) -> str:
    """Return the language in the suffix of a file: ``fr`` for ``train.fr.gz``, "" for ``a.tsv``."""
    suffix = Path(name.removesuffix(".gz").removesuffix(".xz")).suffix.removeprefix(".")
    code, _, rest = suffix.replace("-", "_").partition("_")
    # Many three-letter suffixes are not languages: txt, src, tok, raw.
    is_language = (code in ISO_639_1 and len(rest) in (0, 2, 4)) or (
        len(code) == 3 and len(rest) == 4 and code.islower()
    )
    return suffix if is_language else ""


def base_language(language: str) -> str:
    """Return the code without region and script: ``zh_CN`` and ``zho_Hans`` are ``zh``."""
    code = language.replace("-", "_").partition("_")[0].lower()
    return TWO_LETTERS.get(code, code)
