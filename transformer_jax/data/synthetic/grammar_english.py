"""English sentences of the embedded corpus: subject, verb, objects, place, time; "do" in questions and negations."""

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
from transformer_jax.data.synthetic.lexicon import ANIMATE, BE, Pronoun

_VOWELS = "aeiou"


def english(sentence: Sentence) -> str:
    """The English sentence."""
    first = (
        _question(sentence.first) if sentence.kind == "question" else _statement(sentence.first, sentence.time_first)
    )
    joint = [sentence.joint[0]] if sentence.joint else []
    if sentence.kind == "question":
        return spell(joint + first, "?")
    if sentence.second is None:
        return spell(first, ".")
    second = _statement(sentence.second)
    if sentence.kind == "subordinate_first":
        return spell([*joint, *second, ",", *first], ".")
    comma = [","] if joint == ["but"] else []
    return spell(first + comma + joint + second, ".")


def _statement(clause: Clause, time_first: bool = False) -> list[str]:
    auxiliary, verb = _verb_forms(clause, clause.negated)
    subject = _phrase(clause.subject, is_subject=True) if clause.subject else []
    front = [clause.time[0]] if time_first and clause.time else []
    return front + subject + _predicate(clause, auxiliary, verb, with_time=not time_first)


def _question(clause: Clause) -> list[str]:
    auxiliary, verb = _verb_forms(clause, needs_auxiliary=True)
    subject = _phrase(clause.subject, is_subject=True) if clause.subject else []
    return auxiliary + subject + _predicate(clause, [], verb)


def _verb_forms(clause: Clause, needs_auxiliary: bool) -> tuple[list[str], list[str]]:
    """The auxiliary, if any, and the main verb."""
    verb = clause.verb
    is_third = clause.subject is not None and person(clause.subject) == "third"
    if verb is BE:
        return [verb.english_third if is_third else verb.english], []
    if clause.auxiliary:
        return [clause.auxiliary[0]], [verb.english]
    if clause.tense == "perfect":
        return ["has" if is_third else "have"], [verb.english_participle]
    if needs_auxiliary:
        return ["does" if is_third else "do"], [verb.english]
    return [], [verb.english_third if is_third else verb.english]


def _predicate(clause: Clause, auxiliary: list[str], verb: list[str], with_time: bool = True) -> list[str]:
    """Everything after the subject (in a question, after the auxiliary and the subject)."""
    words = list(auxiliary)
    words += ["not"] if clause.negated else []
    words += [clause.frequency[0]] if clause.frequency else []
    words += verb
    for phrase in (clause.indirect, clause.direct):
        words += _phrase(phrase, is_subject=False) if phrase else []
    words += [clause.quality.english] if clause.quality else []
    words += [clause.manner[0]] if clause.manner else []
    for adjunct in clause.adjuncts:
        words += _adjunct(adjunct)
    words += [clause.time[0]] if clause.time and with_time else []
    return words + (_complement(clause.complement) if clause.complement else [])


def _complement(clause: Clause) -> list[str]:
    if clause.subject is None:
        return ["to", *_predicate(clause, [], [clause.verb.english])]
    return ["that", *_statement(clause)]


def _adjunct(adjunct: Adjunct) -> list[str]:
    return [adjunct.preposition.english, *_phrase(adjunct.phrase, is_subject=False)]


def _phrase(phrase: Phrase, is_subject: bool) -> list[str]:
    match phrase:
        case Name():
            return [phrase.text]
        case Pronoun():
            return [phrase.english if is_subject else phrase.english_object]
        case Couple():
            return [*_phrase(phrase.first, is_subject), "and", *_phrase(phrase.second, is_subject)]
    return _noun_phrase(phrase)


def _noun_phrase(phrase: NounPhrase) -> list[str]:
    noun = phrase.noun.english_plural if phrase.plural else phrase.noun.english
    words = [phrase.adjective.english, noun] if phrase.adjective else [noun]
    determiner = phrase.determiner.english_plural if phrase.plural else phrase.determiner.english
    if determiner == "a" and words[0][0] in _VOWELS:
        determiner = "an"
    if isinstance(phrase.possessor, Name):
        words = [f"{phrase.possessor.text}'s", *words]
    else:
        words = [determiner, *words]
        words += ["of", *_noun_phrase(phrase.possessor)] if phrase.possessor else []
    return words + (_relative(phrase) if phrase.relative else [])


def _relative(phrase: NounPhrase) -> list[str]:
    clause = phrase.relative
    assert clause is not None
    pronoun = "who" if phrase.noun.kind == ANIMATE else "that"
    if clause.gap:
        return [pronoun, *_statement(clause)]
    stand_in = clause._replace(subject=phrase._replace(relative=None))
    auxiliary, verb = _verb_forms(stand_in, clause.negated)
    return [pronoun, *_predicate(clause, auxiliary, verb)]
