"""The languages of a text, and lines in another one, by py3langid (Lui and Baldwin 2012).

Measured on 10,000 pairs each of Multi30k, Tatoeba, Python documentation, WMT and Tanaka with 3 % of
the lines of each side exchanged: 98 % of the lines of the other side are recognized, and 99 % of
lines of a third language. docs/internals/token_stores.md has the figures.
"""

import importlib.util
from collections import Counter
from collections.abc import Sequence

SAMPLED_LINES = 2000
# Share of the sampled lines that makes a language usual.
USUAL_SHARE = 0.05
# Gain in log-likelihood that assigns a line to another language.
MARGIN = 15.0
# A line with fewer letters has no language.
MIN_LETTERS = 6
# The label of numbers, names of files and markup.
NO_LANGUAGE = "zxx"


def can_identify() -> bool:
    return importlib.util.find_spec("py3langid") is not None


def usual_languages(texts: Sequence[str]) -> dict[str, float]:
    """Return the shares of usual languages among lines with letters, the largest first.

    Return nothing if these are less than half of the lines, as in a language that the identifier
    does not know.
    """
    from py3langid import classify

    sample = [text for text in texts[:: max(len(texts) // SAMPLED_LINES, 1)] if _is_long(text)]
    counts = Counter(classify(text)[0] for text in sample)
    shares = {language: count / len(sample) for language, count in counts.most_common()}
    usual = {language: share for language, share in shares.items() if share >= USUAL_SHARE and language != NO_LANGUAGE}
    return usual if sum(usual.values()) >= 0.5 else {}


def foreign_language(text: str, usual: Sequence[str], other: str) -> str:
    """Return the language of a line that is in none of the ``usual`` ones, or ``""``.

    ``other``: the language of the other side, preferred to one that is not much more likely.
    """
    from py3langid import classify, rank

    if classify(text)[0] in (*usual, NO_LANGUAGE) or not _is_long(text):
        return ""
    scores = dict(rank(text))
    usual_score = max(scores[language] for language in usual)
    best = next(language for language in scores if language != NO_LANGUAGE)
    if other and scores[best] - scores[other] < MARGIN < scores[other] - usual_score:
        return other
    return best if scores[best] - usual_score > MARGIN else ""


def _is_long(text: str) -> bool:
    return sum(map(str.isalpha, text)) >= MIN_LETTERS
