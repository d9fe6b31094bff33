"""Scripts and languages of text, by the Unicode names of its letters."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from transformer_jax.config.languages import UNDETERMINED

SCRIPTS_WITHOUT_SPACES = frozenset(
    ("HAN", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE")
)
# If units between spaces are longer on average, the spaces separate phrases, not words.
MAX_LETTERS_A_WORD = 6
# First words of Unicode names that are not the name of the script.
SCRIPT_ALIASES = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "COMBINING": "", "VARIATION": "", "SPACE": ""}
# Scripts that practically only one language uses.
LANGUAGE_OF_SCRIPT = {"HAN": "zh", "HANGUL": "ko", "THAI": "th", "KHMER": "km", "LAO": "lo", "MYANMAR": "my"}
LANGUAGE_OF_SCRIPT |= {"TIBETAN": "bo", "HEBREW": "he", "GREEK": "el", "GEORGIAN": "ka", "ARMENIAN": "hy"}
LANGUAGE_OF_SCRIPT |= {"TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn", "MALAYALAM": "ml", "GUJARATI": "gu"}
LANGUAGE_OF_SCRIPT |= {"GURMUKHI": "pa", "SINHALA": "si", "BENGALI": "bn", "ORIYA": "or", "ETHIOPIC": "am"}
KANA = ("HIRAGANA", "KATAKANA")
# Share of kana beside Han from which on text is Japanese.
MIN_KANA = 0.05
# Share of another script in text with Latin names that makes it the script of the text.
MIN_OTHER = 0.2


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str:
    """Return the script of a letter or mark, as ``LATIN`` or ``HAN``, else empty."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    first = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "").replace("-", " ").partition(" ")[0]
    return SCRIPT_ALIASES.get(first, first)


def writes_without_spaces(character: str) -> bool:
    return script_of(character) in SCRIPTS_WITHOUT_SPACES


def lack_spaces(texts: Iterable[str]) -> bool:
    """Return whether texts are in a script without spaces between words, and have none."""
    lengths = [sum(map(writes_without_spaces, word)) for text in texts for word in text.split()]
    long = [length for length in lengths if length]
    return sum(long) > MAX_LETTERS_A_WORD * len(long)


def language_of_text(lines: Iterable[str]) -> tuple[str, str]:
    """Return the language of the lines by their script, or ``und``, and the script."""
    letters = Counter(script_of(character) for line in lines for character in line)
    del letters[""]
    if not letters:
        return UNDETERMINED, ""
    kana = sum(letters[script] for script in KANA)
    letters["HAN"] += sum(letters.pop(script, 0) for script in KANA)
    script, count = letters.most_common(1)[0]
    if script == "LATIN":
        # Text in another script often has names in Latin letters.
        others = ((name, number) for name, number in letters.most_common() if name in LANGUAGE_OF_SCRIPT)
        other, number = next(others, ("", 0))
        if number >= MIN_OTHER * letters.total():
            script, count = other, number
    if script == "HAN" and kana > MIN_KANA * count:
        return "ja", "kana"
    return LANGUAGE_OF_SCRIPT.get(script, UNDETERMINED), script.capitalize()
