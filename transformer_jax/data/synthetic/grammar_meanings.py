"""Meanings of the sentences of the embedded corpus, independent of the language."""

from typing import NamedTuple

from transformer_jax.data.synthetic.lexicon import Adjective, Determiner, Noun, Preposition, Pronoun, Verb

Words = tuple[str, str]  # an English word or phrase that never changes, and its German translation


class Name(NamedTuple):
    """A person, the same in both languages."""

    text: str


class NounPhrase(NamedTuple):
    """``the old dog of Anna that sleeps``. A name as ``possessor`` takes the place of the determiner ("Anna's dog")."""

    determiner: Determiner
    adjective: Adjective | None
    noun: Noun
    plural: bool
    possessor: "Name | NounPhrase | None" = None
    relative: "Clause | None" = None


class Couple(NamedTuple):
    """``the dog and Anna``: a plural."""

    first: "Name | NounPhrase"
    second: "Name | NounPhrase"


Phrase = Name | Pronoun | NounPhrase | Couple


class Adjunct(NamedTuple):
    """``in the garden``."""

    preposition: Preposition
    phrase: Name | NounPhrase


class Clause(NamedTuple):
    """A subject and what is said of it.

    ``subject`` None: the subject is the noun that this relative clause hangs on, or this is an infinitive clause.
    ``tense``: ``present``, ``perfect`` or ``auxiliary``, which ``auxiliary`` then names (a row of ``MODALS``, or ``FUTURE``).
    ``gap``: the verb's object is the noun that this relative clause hangs on.
    """

    subject: Phrase | None
    verb: Verb
    tense: str = "present"
    auxiliary: tuple[str, str, str, str] | None = None
    negated: bool = False
    frequency: Words | None = None
    time: Words | None = None
    indirect: Phrase | None = None
    direct: Phrase | None = None
    manner: Words | None = None
    adjuncts: tuple[Adjunct, ...] = ()
    quality: Adjective | None = None
    complement: "Clause | None" = None
    gap: bool = False


class Sentence(NamedTuple):
    """One or two clauses. ``kind``: statement, question, subordinate_first, subordinate_last or coordination.

    ``joint``: the question word, or the conjunction, where there is one. ``time_first``: the first clause begins with its time.
    """

    kind: str
    first: Clause
    second: Clause | None = None
    joint: Words | None = None
    time_first: bool = False


def person(phrase: Phrase) -> str:
    """``first`` or ``third`` person singular, or ``plural``: what the verb agrees with."""
    match phrase:
        case Pronoun():
            return phrase.person
        case NounPhrase():
            return "plural" if phrase.plural else "third"
        case Couple():
            return "plural"
    return "third"


def spell(words: list[str], end: str) -> str:
    """Words and commas as a written sentence: ``["the", "dog", ",", ",", "he"]`` becomes ``The dog, he.`` with end ``.``."""
    text = " ".join(words).replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + end
