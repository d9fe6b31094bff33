"""German sentences of the embedded corpus.

The finite verb is second in a statement, first in a question and last in a subordinate clause; participles, infinitives and
separable prefixes go to the end; articles, adjectives and nouns agree in case, gender and number.
"""

from transformer_jax.data.synthetic.grammar_meanings import (
    Adjunct,
    Clause,
    Couple,
    Name,
    NounPhrase,
    Phrase,
    Sentence,
    person,
    spell,
)
from transformer_jax.data.synthetic.lexicon import Noun, Pronoun

_CASES = {"nominative": 0, "accusative": 1, "dative": 2, "genitive": 3}
# by gender or plural ("p"), then by case: nominative, accusative, dative, genitive
_ARTICLES = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
_STRONG = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
_EIN = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
_STRONG_ADJECTIVE = _STRONG | {"m": "er en em en", "n": "es es em en"}
_WEAK_ADJECTIVE = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
_MIXED_ADJECTIVE = _WEAK_ADJECTIVE | {"m": "er en en en", "n": "es es en en"}
_ADJECTIVE_ENDINGS = {
    "definite": _WEAK_ADJECTIVE,
    "der": _WEAK_ADJECTIVE,
    "ein": _MIXED_ADJECTIVE,
    "strong": _STRONG_ADJECTIVE,
    "number": _STRONG_ADJECTIVE,
}


def german(sentence: Sentence) -> str:
    """The German sentence, the only translation of the English one."""
    joint = [sentence.joint[1]] if sentence.joint else []
    if sentence.kind == "question":
        return spell(joint + _verb_first(sentence.first), "?")
    if sentence.kind == "subordinate_first" and sentence.second:
        return spell([*joint, *_verb_last(sentence.second), ",", *_verb_first(sentence.first)], ".")
    first = _verb_second(sentence.first, sentence.time_first)
    if sentence.second is None:
        return spell(first, ".")
    if sentence.kind == "subordinate_last":
        return spell([*first, ",", *joint, *_verb_last(sentence.second)], ".")
    comma = [","] if joint == ["aber"] else []
    return spell(first + comma + joint + _verb_second(sentence.second), ".")


def _verb_first(clause: Clause) -> list[str]:
    finite, end = _verb_forms(clause, person(clause.subject) if clause.subject else "third")
    subject = _phrase(clause.subject, "nominative") if clause.subject else []
    return [finite, *subject, *_middle(clause), *end, *_complement(clause)]


def _verb_second(clause: Clause, time_first: bool = False) -> list[str]:
    if time_first and clause.time:
        return [clause.time[1], *_verb_first(clause._replace(time=None))]
    finite, end = _verb_forms(clause, person(clause.subject) if clause.subject else "third")
    subject = _phrase(clause.subject, "nominative") if clause.subject else []
    return [*subject, finite, *_middle(clause), *end, *_complement(clause)]


def _verb_last(clause: Clause, agrees_with: str = "") -> list[str]:
    """A subordinate clause; ``agrees_with``: person of the noun that a relative clause without subject hangs on."""
    finite, end = _verb_forms(clause, agrees_with or (person(clause.subject) if clause.subject else "third"))
    subject = _phrase(clause.subject, "nominative") if clause.subject else []
    verbs = [clause.verb.prefix + finite] if clause.tense == "present" else [*end, finite]
    return [*subject, *_middle(clause), *verbs, *_complement(clause)]


def _verb_forms(clause: Clause, agreement: str) -> tuple[str, list[str]]:
    """The finite verb, and what stands at the end of a main clause: prefix, participle or infinitive."""
    verb = clause.verb
    column = ("first", "third", "plural").index(agreement)
    if clause.auxiliary:
        return clause.auxiliary[1:][column], [verb.prefix + verb.plural]
    if clause.tense == "perfect":
        forms = ("bin", "ist", "sind") if verb.being else ("habe", "hat", "haben")
        return forms[column], [verb.participle]
    return (verb.first, verb.third, verb.plural)[column], [verb.prefix] if verb.prefix else []


def _middle(clause: Clause) -> list[str]:
    """Between the verbs: pronouns, time, objects, "nicht", manner, prepositional phrases, predicate."""
    direct_case = "dative" if clause.verb.objects == "dative" else "accusative"
    objects = ((clause.indirect, "dative"), (clause.direct, direct_case))
    adverb = clause.frequency or clause.time
    words: list[str] = []
    for phrase, case in objects:
        words += _phrase(phrase, case) if isinstance(phrase, Pronoun) else []
    words += [adverb[1]] if adverb else []
    for phrase, case in objects:
        words += _phrase(phrase, case) if phrase and not isinstance(phrase, Pronoun) else []
    words += ["nicht"] if clause.negated else []
    words += [clause.manner[1]] if clause.manner else []
    for adjunct in clause.adjuncts:
        words += _adjunct(adjunct)
    return words + ([clause.quality.german] if clause.quality else [])


def _complement(clause: Clause) -> list[str]:
    inner = clause.complement
    if inner is None:
        return []
    if inner.subject:
        return [",", "dass", *_verb_last(inner)]
    verb = inner.verb
    infinitive = [f"{verb.prefix}zu{verb.plural}"] if verb.prefix else ["zu", verb.plural]
    return [",", *_middle(inner), *infinitive]


def _adjunct(adjunct: Adjunct) -> list[str]:
    preposition = adjunct.preposition
    words = _phrase(adjunct.phrase, preposition.case)
    phrase = adjunct.phrase
    if isinstance(phrase, NounPhrase) and words[0] in ("dem", "der", "das") and not phrase.plural:
        fusion = dict(preposition.fused).get(phrase.noun.gender)
        if fusion:
            return [fusion, *words[1:]]
    return [preposition.german, *words]


def _phrase(phrase: Phrase, case: str) -> list[str]:
    match phrase:
        case Name():
            return [phrase.text]
        case Pronoun():
            return [{"nominative": phrase.nominative, "accusative": phrase.accusative, "dative": phrase.dative}[case]]
        case Couple():
            return [*_phrase(phrase.first, case), "und", *_phrase(phrase.second, case)]
    return _noun_phrase(phrase, case)


def _noun_phrase(phrase: NounPhrase, case: str) -> list[str]:
    number_gender = "p" if phrase.plural else phrase.noun.gender
    declension = "strong" if isinstance(phrase.possessor, Name) else phrase.determiner.declension
    words = [phrase.possessor.text + "s"] if isinstance(phrase.possessor, Name) else [_determiner(phrase, case)]
    if phrase.adjective:
        ending = _ending(_ADJECTIVE_ENDINGS[declension], number_gender, case)
        words.append(phrase.adjective.german + ending)
    words.append(noun_form(phrase.noun, case, phrase.plural))
    words += _noun_phrase(phrase.possessor, "genitive") if isinstance(phrase.possessor, NounPhrase) else []
    if phrase.relative:
        relative_case = "accusative" if phrase.relative.gap else "nominative"
        pronoun = _ending(_ARTICLES, number_gender, relative_case)
        words += [",", pronoun, *_verb_last(phrase.relative, "" if phrase.relative.gap else person(phrase)), ","]
    return words


def _determiner(phrase: NounPhrase, case: str) -> str:
    number_gender = "p" if phrase.plural else phrase.noun.gender
    determiner = phrase.determiner
    if determiner.declension == "number":
        return determiner.german
    endings = {"definite": _ARTICLES, "ein": _EIN}.get(determiner.declension, _STRONG)
    return determiner.german + _ending(endings, number_gender, case)


def _ending(endings: dict[str, str], number_gender: str, case: str) -> str:
    return endings[number_gender].split()[_CASES[case]].strip("-")


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    """The German noun in a case and number: the dative plural adds "n"; weak nouns change in all but the nominative."""
    if plural:
        adds_n = case == "dative" and noun.german_plural[-1] not in "ns"
        return noun.german_plural + "n" * adds_n
    if noun.weak and case != "nominative":
        return noun.german_plural
    return noun.genitive if case == "genitive" else noun.german
