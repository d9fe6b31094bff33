"""The vocabulary that a corpus needs: its size, joint or separate; and whether a trained one cuts the text too finely."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.data.corpus_statistics import FULL_WIDTH, ZERO_WIDTH, SideText, shared_letters, side_text
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.subword import SUBWORD_KINDS

PIECES_PER_CHARACTER = 3
# Of distinct runs of letters: sentencepiece found 1.9 or more in 200 to 20,000 lines of English, German, French and Japanese.
PIECES_PER_WORD = 1.5
# 4 special ids and 256 bytes.
FIXED_PIECES = 260
LEAST_SHARED = 0.5
MOST_PIECES_A_WORD, MOST_PIECES_A_CHARACTER = 4.0, 1.5


class VocabularyChoice(NamedTuple):
    """Settings by dotted key, and a line that gives the reasons."""

    settings: dict[str, Any]
    sentence: str


def vocabulary_of(
    source: SideText, target: SideText, kind: str, size: int, stated: Mapping[str, Any] | None = None
) -> VocabularyChoice:
    """Of subwords at least ``size`` pieces and three for each distinct character, but no more than the text supports.

    One vocabulary for both sides where half of the letters are in scripts of both, else two, and then source and target
    embeddings cannot be tied. What ``stated`` has stays.
    """
    stated = stated or {}
    shared = shared_letters(source, target)
    is_joint, reason = shared >= LEAST_SHARED, f"{shared:.0%} of the letters in scripts of both"
    if not is_joint and min(map(_supported, (source, target))) <= max(map(_required, (source, target))):
        is_joint, reason = True, "too little text for two"
    if "tokenizer.joint" in stated:
        is_joint, reason = stated["tokenizer.joint"], "tokenizer.joint is stated"
    elif stated.get("model.tying") in ("all", "embeddings"):
        is_joint, reason = True, f"model.tying={stated['model.tying']} is stated"
    sides = [_joined(source, target)] if is_joint else [source, target]
    characters = max(len(side.characters) for side in sides)
    needed = FIXED_PIECES + PIECES_PER_CHARACTER * characters
    supported = min(map(_supported, sides))
    least = min(max(size, needed), supported) if kind in SUBWORD_KINDS else size
    chosen_size = stated.get("tokenizer.vocabulary_size", least)
    settings: dict[str, Any] = {"tokenizer.vocabulary_size": chosen_size, "tokenizer.joint": is_joint}
    if kind in SUBWORD_KINDS:
        # Each side by its script.
        settings["tokenizer.character_coverage"] = 0
    if not is_joint:
        settings["model.tying"] = "output"
    settings = {key: value for key, value in settings.items() if key not in stated}
    scripts = f"{_names(source)} and {_names(target)}"
    number = "one joint vocabulary" if is_joint else "two vocabularies"
    odd = {
        "full-width": source.count(FULL_WIDTH) + target.count(FULL_WIDTH),
        "zero-width": source.count(ZERO_WIDTH) + target.count(ZERO_WIDTH),
    }
    kept = ", ".join(f"{count:,} {name}" for name, count in odd.items() if count) or "no full- or zero-width"
    sentence = (
        f"{number} of {chosen_size:,} pieces ({scripts}, {reason}; {characters:,} distinct characters); "
        f"text is not normalized: {kept} characters in a sample of {source.sentences:,} pairs"
    )
    return VocabularyChoice(settings, sentence)


def too_many_pieces(tokenizers: TokenizerPair, pairs: Sequence[SentencePair], languages: tuple[str, str]) -> list[str]:
    """A warning for each side that subwords cut into more than four pieces a word, or 1.5 a character without spaces."""
    found = []
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
    for language, sentences, tokenizer in zip(languages, texts, tokenizers, strict=True):
        if tokenizer.kind not in SUBWORD_KINDS:
            continue
        side = side_text(sentences)
        pieces = sum(map(len, tokenizer.encode_batch(sentences, num_threads=1)))
        unit, number = ("word", side.words) if side.is_spaced else ("character", side.characters.total())
        ratio = pieces / max(number, 1)
        if ratio > (MOST_PIECES_A_WORD if side.is_spaced else MOST_PIECES_A_CHARACTER):
            found.append(
                f"WARNING: {ratio:.1f} pieces a {unit} of {language}: a vocabulary of {tokenizer.vocabulary_size:,} spells "
                f"it in letters or bytes; raise tokenizer.vocabulary_size"
            )
    return found


def _required(side: SideText) -> int:
    return FIXED_PIECES + len(side.characters)


def _supported(side: SideText) -> int:
    """The size of a vocabulary that can be learned from the side."""
    return _required(side) + int(PIECES_PER_WORD * len(side.distinct_words))


def _names(side: SideText) -> str:
    return "/".join(map(str.title, side.main_scripts)) or "no letters"


def _joined(source: SideText, target: SideText) -> SideText:
    characters = source.characters.copy()
    characters.update(target.characters)
    distinct = source.distinct_words | target.distinct_words
    return SideText(source.sentences + target.sentences, source.words + target.words, distinct, characters)
