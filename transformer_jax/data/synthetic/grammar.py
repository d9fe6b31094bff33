"""The embedded default corpus: English sentences and German translations of a synchronous grammar.

``MeaningSampler`` samples a meaning, and ``english`` and ``german`` express it with the words of
``lexicon.py``. Every English sentence has exactly one translation. Each validation and test
sentence contains a combination of words (adjective and noun, noun and verb, verb and object) that
never occurs in the training split: a model that memorizes phrases fails on them, a model that
learned the words and the rules translates them all.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

from transformer_jax.config import ConfigError, DataConfig
from transformer_jax.data.sentence_pairs import Document, SentencePair, digest
from transformer_jax.data.synthetic import lexicon
from transformer_jax.data.synthetic.lexicon import ANIMATE, BE, Adjective, Determiner, Noun, Preposition, Pronoun, Verb
from transformer_jax.data.synthetic.symbols import GeneratedCorpus, held_out_split, split_random
from transformer_jax.registry.plugins import register

# Words of an English sentence.
MIN_WORDS = 3
MAX_WORDS = 16
SENTENCES_IN_PARAGRAPH = (3, 7)
# Training pairs and seed of ``common_words``, and occurrences that make a word common.
_REFERENCE_PAIRS = 8000
_REFERENCE_SEED = 0
_COMMON = 4
AnyWord = TypeVar("AnyWord", Noun, Verb, Adjective)
_DEFINITE = tuple(
    row for row in lexicon.DETERMINERS if row.declension == "definite" or row.english in ("this", "my", "our")
)
_QUESTION_FRAMES = ("none", "none", "animate", "thing", "any", "dative", "direction")
_SIMPLE_FRAMES = (*_QUESTION_FRAMES, "quality")
_MAIN_FRAMES = (*_SIMPLE_FRAMES, "any", "both", "clause", "infinitive")
_KINDS = {"statement": 11, "question": 3, "subordinate_first": 3, "subordinate_last": 3, "coordination": 2}
_CASES = ("nominative", "accusative", "dative", "genitive")
# By gender or plural ("p"): nominative, accusative, dative, genitive.
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

Words = tuple[str, str]
"""A fixed English word or phrase, and its German translation."""


class Name(NamedTuple):
    """A person, the same in both languages."""

    text: str


class NounPhrase(NamedTuple):
    """``the old dog of my aunt that sleeps``; a name as ``possessor`` replaces the determiner."""

    determiner: Determiner
    adjective: Adjective | None
    noun: Noun
    plural: bool
    possessor: "Name | NounPhrase | None" = None
    relative: "Clause | None" = None


class Couple(NamedTuple):
    """``Anna and the dog``, a plural."""

    first: "Name | NounPhrase"
    second: "Name | NounPhrase"


Phrase = Name | Pronoun | NounPhrase | Couple


class Adjunct(NamedTuple):
    """``in the garden``."""

    preposition: Preposition
    phrase: Name | NounPhrase


class Clause(NamedTuple):
    """A subject and its predicate.

    Attributes:
        subject: None in an infinitive clause, and in a relative clause whose subject is the noun
            that it modifies.
        tense: Present, perfect or auxiliary.
        auxiliary: A row of ``MODALS``, or ``FUTURE``.
        gap: Whether it is a relative clause whose object is the noun that it modifies.
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
    """One or two clauses.

    Attributes:
        kind: A key of ``_KINDS``.
        joint: The question word or conjunction, if any.
        time_first: Whether the first clause begins with its time.
    """

    kind: str
    first: Clause
    second: Clause | None = None
    joint: Words | None = None
    time_first: bool = False


def person(subject: Phrase | None) -> str:
    """Return the verb form for a subject: ``first`` or ``third`` person singular, or ``plural``."""
    match subject:
        case Pronoun():
            return subject.person
        case NounPhrase(plural=True) | Couple():
            return "plural"
    return "third"


def spell(words: list[str], end: str) -> str:
    """Write words and commas as a sentence: ``["the", "dog", ",", "he"]`` is ``The dog, he.``"""
    text = " ".join(words).replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + end


@cache
def combination_split(first: str, second: str) -> str:
    """Return the split of a combination of English words; 9 of 10 are in training."""
    return held_out_split(f"{first}+{second}")


class MeaningSampler:
    """Samples sentences of a split, without combinations of words of another held-out split.

    ``has_held_out``: whether the last sentence has a combination that only this split has, always
    False in training.
    """

    def __init__(self, rng: random.Random, split: str) -> None:
        self._rng = rng
        self._split = split
        self.has_held_out = False

    def sentence(self) -> Sentence:
        self.has_held_out = False
        kind = self._rng.choices(tuple(_KINDS), tuple(_KINDS.values()))[0]
        if kind == "statement":
            clause = self._clause(_MAIN_FRAMES)
            return Sentence(kind, clause, time_first=clause.time is not None and self._chance(0.6))
        if kind == "question":
            clause = self._clause(_QUESTION_FRAMES)._replace(negated=False)
            if clause.subject is lexicon.PRONOUNS[0]:
                clause = clause._replace(subject=self._name())
            word = self._rng.choice(lexicon.QUESTION_WORDS) if self._chance(0.5) else None
            return Sentence(kind, clause, joint=word)
        joints = lexicon.COORDINATORS if kind == "coordination" else lexicon.SUBORDINATORS
        first, second = self._clause(_SIMPLE_FRAMES, is_rich=False), self._clause(_SIMPLE_FRAMES, is_rich=False)
        return Sentence(kind, first, second, self._rng.choice(joints))

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def _fitting(self, words: Sequence[AnyWord], partner: Noun | Verb) -> AnyWord:
        """Choose one of ``words`` that this split may combine with ``partner``."""
        while True:
            word = self._rng.choice(words)
            owner = combination_split(word.english, partner.english)
            if owner in ("train", self._split):
                self.has_held_out |= owner != "train"
                return word

    def _clause(self, frames: tuple[str, ...], is_rich: bool = True) -> Clause:
        frame = self._rng.choice(frames)
        if frame == "quality":
            return self._quality_clause()
        verb = self._rng.choice(lexicon.VERBS[frame])
        subject = self._subject(verb, is_rich)
        clause = self._with_tense(Clause(subject, verb))
        clause = clause._replace(negated=clause.tense != "auxiliary" and self._chance(0.12))
        clause = self._with_objects(clause, is_rich)
        has_adverb = self._chance(0.5 if is_rich else 0.25)
        if has_adverb and not clause.negated and self._chance(0.4):
            clause = clause._replace(frequency=self._rng.choice(lexicon.FREQUENCIES))
        elif has_adverb:
            times = lexicon.PAST_TIMES if clause.tense == "perfect" else lexicon.TIMES
            clause = clause._replace(time=self._rng.choice(times))
        if clause.complement or frame == "both":
            return clause
        return self._with_setting(clause, 0.3 if is_rich else 0.15)

    def _quality_clause(self) -> Clause:
        noun = self._rng.choice(self._rng.choice((lexicon.ANIMATES, lexicon.THINGS, lexicon.PLACES)))
        subject = self._noun_phrase(noun, adjective_chance=0.1)
        quality = self._fitting(lexicon.ADJECTIVES[noun.kind], noun)
        return Clause(subject, lexicon.BE, quality=quality, negated=self._chance(0.2))

    def _with_tense(self, clause: Clause) -> Clause:
        draw = self._rng.random()
        if draw < 0.6:
            return clause
        if draw < 0.8:
            return clause._replace(tense="perfect")
        auxiliary = lexicon.FUTURE if draw < 0.85 else self._rng.choice(lexicon.MODALS)
        return clause._replace(tense="auxiliary", auxiliary=auxiliary)

    def _with_objects(self, clause: Clause, is_rich: bool) -> Clause:
        verb = clause.verb
        determiners = _DEFINITE if clause.negated else lexicon.DETERMINERS
        match verb.objects:
            case "animate" | "dative":
                return clause._replace(direct=self._animate_object(clause, determiners))
            case "thing":
                return clause._replace(direct=self._object(lexicon.THINGS, verb, determiners, is_rich))
            case "any":
                if self._chance(0.4):
                    return clause._replace(direct=self._animate_object(clause, determiners))
                nouns = lexicon.PLACES if self._chance(0.2) else lexicon.THINGS
                return clause._replace(direct=self._object(nouns, verb, determiners, is_rich))
            case "both":
                direct = self._object(lexicon.THINGS, verb, determiners, is_rich=False)
                return clause._replace(indirect=self._animate_object(clause, determiners), direct=direct)
            case "clause":
                return clause._replace(complement=self._clause(_SIMPLE_FRAMES, is_rich=False)._replace(time=None))
            case "infinitive":
                inner_verb = self._rng.choice(
                    lexicon.VERBS[self._rng.choice(("none", "animate", "thing", "any", "dative"))]
                )
                inner = self._with_objects(clause._replace(verb=inner_verb, negated=False), is_rich=False)
                inner = self._with_setting(inner._replace(subject=None, tense="present", auxiliary=None), 0.2)
                return clause._replace(complement=inner)
            case "direction":
                return clause._replace(adjuncts=(self._place(lexicon.DIRECTION_PREPOSITIONS),))
        return clause

    def _with_setting(self, clause: Clause, probability: float) -> Clause:
        """Add manner, company and place, each with some probability."""
        manner = self._rng.choice(lexicon.MANNERS) if self._chance(probability) else None
        adjuncts = clause.adjuncts
        if self._chance(probability / 2):
            adjuncts = (self._company(), *adjuncts)
        if self._chance(probability) and clause.verb.objects != "direction":
            adjuncts = (*adjuncts, self._place(lexicon.PLACE_PREPOSITIONS))
        return clause._replace(manner=manner, adjuncts=adjuncts)

    def _place(self, prepositions: Sequence[lexicon.Preposition]) -> Adjunct:
        phrase = self._noun_phrase(self._rng.choice(lexicon.PLACES), adjective_chance=0.25)
        return Adjunct(self._rng.choice(prepositions), phrase)

    def _company(self) -> Adjunct:
        if self._chance(0.3):
            return Adjunct(self._rng.choice(lexicon.COMPANION_PREPOSITIONS), self._name())
        noun = self._rng.choice(lexicon.ANIMATES + lexicon.THINGS)
        return Adjunct(self._rng.choice(lexicon.COMPANION_PREPOSITIONS), self._noun_phrase(noun))

    def _name(self) -> Name:
        return Name(self._rng.choice(lexicon.NAMES))

    def _subject(self, verb: Verb, is_rich: bool) -> Phrase:
        draw = self._rng.random()
        if draw < 0.18:
            # "I" twice: it has special verb forms.
            return self._rng.choice((lexicon.PRONOUNS[0], *lexicon.PRONOUNS))
        if draw < 0.28:
            return self._name()
        noun = self._fitting(lexicon.ANIMATES, verb)
        if draw < 0.34 and is_rich:
            return Couple(self._name(), self._noun_phrase(noun))
        if draw < 0.44 and is_rich:
            return self._noun_phrase(noun, adjective_chance=0.1)._replace(possessor=None, relative=self._relative(noun))
        return self._noun_phrase(noun)

    def _relative(self, noun: Noun) -> Clause:
        """Return a relative clause on a subject: ``who sleeps``, ``who loves the cat``."""
        frame = self._rng.choice(("none", "animate", "thing", "any", "dative"))
        clause = self._with_objects(Clause(None, self._fitting(lexicon.VERBS[frame], noun)), is_rich=False)
        return clause if clause.verb.prefix else self._with_tense(clause)

    def _animate_object(self, clause: Clause, determiners: Sequence[Determiner]) -> Phrase:
        draw = self._rng.random()
        if draw < 0.2:
            first_persons = isinstance(clause.subject, Pronoun) and clause.subject.english in ("I", "we")
            return self._rng.choice(lexicon.PRONOUNS[1:3] + lexicon.PRONOUNS[4:] if first_persons else lexicon.PRONOUNS)
        if draw < 0.3:
            return self._name()
        return self._noun_phrase(self._fitting(lexicon.ANIMATES, clause.verb), determiners)

    def _object(
        self, nouns: Sequence[Noun], verb: Verb, determiners: Sequence[Determiner], is_rich: bool
    ) -> NounPhrase:
        noun = self._fitting(nouns, verb)
        phrase = self._noun_phrase(noun, determiners)
        if not is_rich or not self._chance(0.12):
            return phrase
        inner_verb = self._fitting(lexicon.VERBS["thing"] + lexicon.VERBS["any"], noun)
        inner = Clause(self._subject(inner_verb, is_rich=False), inner_verb, gap=True)
        possessor = phrase.possessor if isinstance(phrase.possessor, Name) else None
        return phrase._replace(possessor=possessor, relative=inner)

    def _noun_phrase(
        self, noun: Noun, determiners: Sequence[Determiner] = lexicon.DETERMINERS, adjective_chance: float = 0.4
    ) -> NounPhrase:
        determiner = self._rng.choices(determiners, [row.weight for row in determiners])[0]
        plural = not determiner.english or (bool(determiner.english_plural) and self._chance(0.3))
        adjective: Adjective | None = None
        if self._chance(adjective_chance):
            adjective = self._fitting(lexicon.ADJECTIVES[noun.kind], noun)
        possessor: Name | NounPhrase | None = None
        if determiner.declension == "definite" and self._chance(0.12):
            possessor = self._owner() if adjective or self._chance(0.5) else self._name()
        return NounPhrase(determiner, adjective, noun, plural, possessor)

    def _owner(self) -> NounPhrase:
        determiner, plural = self._rng.choice(_DEFINITE), self._chance(0.2)
        return NounPhrase(determiner, None, self._rng.choice(lexicon.ANIMATES), plural)


def english(sentence: Sentence) -> str:
    """Write the English sentence: subject, verb, objects, place, time; "do" in questions."""
    joint = [sentence.joint[0]] if sentence.joint else []
    if sentence.kind == "question":
        return spell(joint + _english_clause(sentence.first, is_question=True), "?")
    first = _english_clause(sentence.first, time_first=sentence.time_first)
    if sentence.second is None:
        return spell(first, ".")
    second = _english_clause(sentence.second)
    if sentence.kind == "subordinate_first":
        return spell([*joint, *second, ",", *first], ".")
    comma = [","] if joint == ["but"] else []
    return spell(first + comma + joint + second, ".")


def _english_clause(clause: Clause, *, is_question: bool = False, time_first: bool = False) -> list[str]:
    auxiliary, verb = _english_verb(clause, person(clause.subject), clause.negated or is_question)
    subject = _english_phrase(clause.subject, is_subject=True)
    if is_question:
        return auxiliary + subject + _english_predicate(clause, verb)
    if time_first and clause.time:
        return [clause.time[0], *subject, *_english_predicate(clause._replace(time=None), verb, auxiliary)]
    return subject + _english_predicate(clause, verb, auxiliary)


def _english_verb(clause: Clause, agreement: str, needs_auxiliary: bool) -> tuple[list[str], list[str]]:
    """Return the auxiliary, if any, and the main verb."""
    verb, is_third = clause.verb, agreement == "third"
    if verb is BE:
        return [verb.english_third if is_third else verb.english], []
    if clause.auxiliary:
        return [clause.auxiliary[0]], [verb.english]
    if clause.tense == "perfect":
        return ["has" if is_third else "have"], [verb.english_participle]
    if needs_auxiliary:
        return ["does" if is_third else "do"], [verb.english]
    return [], [verb.english_third if is_third else verb.english]


def _english_predicate(clause: Clause, verb: Sequence[str], auxiliary: Sequence[str] = ()) -> list[str]:
    """Return the words after the subject."""
    words = [*auxiliary, *(["not"] if clause.negated else [])]
    words += [clause.frequency[0]] if clause.frequency else []
    words += [*verb, *_english_phrase(clause.indirect), *_english_phrase(clause.direct)]
    words += [clause.quality.english] if clause.quality else []
    words += [clause.manner[0]] if clause.manner else []
    for adjunct in clause.adjuncts:
        words += [adjunct.preposition.english, *_english_phrase(adjunct.phrase)]
    words += [clause.time[0]] if clause.time else []
    inner = clause.complement
    if inner is None:
        return words
    if inner.subject is None:
        return [*words, "to", *_english_predicate(inner, [inner.verb.english])]
    return [*words, "that", *_english_clause(inner)]


def _english_phrase(phrase: Phrase | None, is_subject: bool = False) -> list[str]:
    match phrase:
        case None:
            return []
        case Name():
            return [phrase.text]
        case Pronoun():
            return [phrase.english if is_subject else phrase.english_object]
        case Couple():
            return [*_english_phrase(phrase.first, is_subject), "and", *_english_phrase(phrase.second, is_subject)]
    noun = phrase.noun.english_plural if phrase.plural else phrase.noun.english
    words = [phrase.adjective.english, noun] if phrase.adjective else [noun]
    determiner = phrase.determiner.english_plural if phrase.plural else phrase.determiner.english
    if determiner == "a" and words[0][0] in "aeiou":
        determiner = "an"
    if isinstance(phrase.possessor, Name):
        words = [f"{phrase.possessor.text}'s", *words]
    else:
        words = [determiner, *words]
        words += ["of", *_english_phrase(phrase.possessor)] if phrase.possessor else []
    clause = phrase.relative
    if clause is None:
        return words
    words.append("who" if phrase.noun.kind == ANIMATE else "that")
    if clause.gap:
        return words + _english_clause(clause)
    auxiliary, verb = _english_verb(clause, person(phrase), clause.negated)
    return words + _english_predicate(clause, verb, auxiliary)


def german(sentence: Sentence) -> str:
    """Return the German sentence.

    The finite verb is second in a statement, first in a question and last in a subordinate clause.
    Participles, infinitives and separable prefixes go to the end. Articles, adjectives and nouns
    agree in case, gender and number.
    """
    joint = [sentence.joint[1]] if sentence.joint else []
    first, second = sentence.first, sentence.second
    if sentence.kind == "question":
        return spell(joint + _german_clause(first, "verb first"), "?")
    if sentence.kind == "subordinate_first" and second:
        return spell([*joint, *_german_clause(second, "verb last"), ",", *_german_clause(first, "verb first")], ".")
    words = _german_clause(first, "verb second")
    if sentence.time_first and first.time:
        words = [first.time[1], *_german_clause(first._replace(time=None), "verb first")]
    if second is None:
        return spell(words, ".")
    if sentence.kind == "subordinate_last":
        return spell([*words, ",", *joint, *_german_clause(second, "verb last")], ".")
    comma = [","] if joint == ["aber"] else []
    return spell(words + comma + joint + _german_clause(second, "verb second"), ".")


def _german_clause(clause: Clause, order: str, agreement: str = "") -> list[str]:
    """Return the words of a clause, whose verb agrees with ``agreement`` instead of its subject."""
    finite, end = _german_verb(clause, agreement or person(clause.subject))
    subject, middle = _german_phrase(clause.subject, "nominative"), _german_middle(clause)
    if order == "verb last":
        verbs = [clause.verb.prefix + finite] if clause.tense == "present" else [*end, finite]
        words = [*subject, *middle, *verbs]
    else:
        front = [finite, *subject] if order == "verb first" else [*subject, finite]
        words = [*front, *middle, *end]
    inner = clause.complement
    if inner is None:
        return words
    if inner.subject:
        return [*words, ",", "dass", *_german_clause(inner, "verb last")]
    verb = inner.verb
    infinitive = [f"{verb.prefix}zu{verb.plural}"] if verb.prefix else ["zu", verb.plural]
    return [*words, ",", *_german_middle(inner), *infinitive]


def _german_verb(clause: Clause, agreement: str) -> tuple[str, list[str]]:
    """Return the finite verb, and prefix, participle or infinitive at the end of a main clause."""
    verb = clause.verb
    column = ("first", "third", "plural").index(agreement)
    if clause.auxiliary:
        return clause.auxiliary[1:][column], [verb.prefix + verb.plural]
    if clause.tense == "perfect":
        forms = ("bin", "ist", "sind") if verb.being else ("habe", "hat", "haben")
        return forms[column], [verb.participle]
    return (verb.first, verb.third, verb.plural)[column], [verb.prefix] if verb.prefix else []


def _german_middle(clause: Clause) -> list[str]:
    """Return the words between the verbs: pronouns, time, objects, "nicht", manner, adjuncts."""
    direct_case = "dative" if clause.verb.objects == "dative" else "accusative"
    objects = ((clause.indirect, "dative"), (clause.direct, direct_case))
    adverb = clause.frequency or clause.time
    words: list[str] = []
    for phrase, case in objects:
        words += _german_phrase(phrase, case) if isinstance(phrase, Pronoun) else []
    words += [adverb[1]] if adverb else []
    for phrase, case in objects:
        words += _german_phrase(phrase, case) if not isinstance(phrase, Pronoun) else []
    words += ["nicht"] if clause.negated else []
    words += [clause.manner[1]] if clause.manner else []
    for adjunct in clause.adjuncts:
        words += _german_adjunct(adjunct)
    return words + ([clause.quality.german] if clause.quality else [])


def _german_adjunct(adjunct: Adjunct) -> list[str]:
    preposition, phrase = adjunct
    words = _german_phrase(phrase, preposition.case)
    if isinstance(phrase, NounPhrase) and words[0] in ("dem", "der", "das") and not phrase.plural:
        fusion = dict(preposition.fused).get(phrase.noun.gender)
        if fusion:
            return [fusion, *words[1:]]
    return [preposition.german, *words]


def _german_phrase(phrase: Phrase | None, case: str) -> list[str]:
    match phrase:
        case None:
            return []
        case Name():
            return [phrase.text]
        case Pronoun():
            return [{"nominative": phrase.nominative, "accusative": phrase.accusative, "dative": phrase.dative}[case]]
        case Couple():
            return [*_german_phrase(phrase.first, case), "und", *_german_phrase(phrase.second, case)]
    gender = "p" if phrase.plural else phrase.noun.gender
    determiner, possessor = phrase.determiner, phrase.possessor
    declension = determiner.declension
    if isinstance(possessor, Name):
        declension = "strong"
        words = [f"{possessor.text}s"]
    elif declension == "number":
        words = [determiner.german]
    else:
        endings = {"definite": _ARTICLES, "ein": _EIN}.get(declension, _STRONG)
        words = [determiner.german + _ending(endings, gender, case)]
    if phrase.adjective:
        words.append(phrase.adjective.german + _ending(_ADJECTIVE_ENDINGS[declension], gender, case))
    words.append(noun_form(phrase.noun, case, phrase.plural))
    words += _german_phrase(possessor, "genitive") if isinstance(possessor, NounPhrase) else []
    clause = phrase.relative
    if clause:
        pronoun = _ending(_ARTICLES, gender, "accusative" if clause.gap else "nominative")
        words += [",", pronoun, *_german_clause(clause, "verb last", "" if clause.gap else person(phrase)), ","]
    return words


def _ending(endings: dict[str, str], gender: str, case: str) -> str:
    return endings[gender].split()[_CASES.index(case)].strip("-")


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        adds_n = case == "dative" and noun.german_plural[-1] not in "ns"
        return noun.german_plural + "n" * adds_n
    if noun.weak and case != "nominative":
        return noun.german_plural
    return noun.genitive if case == "genitive" else noun.german


@cache
def common_words() -> frozenset[str]:
    """Return the words of both languages with at least 4 occurrences in 8000 training pairs.

    Evaluation sentences use no other words. They practically always occur in 20,000 training pairs
    of any seed, so that the evaluation measures new combinations of learned words.
    """
    reference = GrammarCorpus(_REFERENCE_PAIRS, _REFERENCE_SEED).pairs("train")
    counts = Counter(word for pair in reference for text in pair for word in _words(text))
    return frozenset(word for word, count in counts.items() if count >= _COMMON)


def _words(text: str) -> list[str]:
    return text[:-1].replace(",", "").split()


@dataclass(frozen=True)
class GrammarCorpus(GeneratedCorpus):
    """English to German; English sentences have 3 to 16 words."""

    source_language: str = "en"
    target_language: str = "de"

    def __post_init__(self) -> None:
        if (self.source_language, self.target_language) != ("en", "de"):
            keys = f"data.source_language={self.source_language}, data.target_language={self.target_language}"
            raise ConfigError(keys, "the grammar is English to German", "set them to en and de")

    def generated(self, split: str) -> Iterator[SentencePair]:
        sampler = MeaningSampler(split_random(split, self.seed), split)
        seen: set[str] = set()
        while True:
            meaning = sampler.sentence()
            if sampler.has_held_out != (split != "train"):
                continue
            source = english(meaning)
            if source in seen or not MIN_WORDS <= source.count(" ") + 1 <= MAX_WORDS:
                continue
            pair = SentencePair(source, german(meaning))
            if split == "train" or common_words().issuperset(_words(source) + _words(pair.target)):
                seen.add(source)
                yield pair


@register("data_source", "grammar")
def grammar_corpus(data: DataConfig, seed: int) -> GrammarCorpus:
    return GrammarCorpus(data.generated_pairs, seed, data.source_language, data.target_language)


@dataclass(frozen=True)
class GeneratedParagraphs:
    """English sentences of the embedded grammar in paragraphs of 3 to 7, one a line."""

    training_sentences: int
    seed: int

    def documents(self, split: str) -> Iterator[Document]:
        sentences = (pair.source for pair in self._grammar.pairs(split))
        rng = split_random(split, self.seed)
        while paragraph := list(itertools.islice(sentences, rng.randint(*SENTENCES_IN_PARAGRAPH))):
            text = " ".join(paragraph)
            yield Document(text, len(text.encode()) + 1)

    def count_bytes(self, split: str) -> int:
        return 40 * self._grammar.count(split)

    def fingerprint(self, split: str) -> str:
        return digest(["paragraphs", str(SENTENCES_IN_PARAGRAPH), self._grammar.fingerprint(split)])

    @property
    def _grammar(self) -> GrammarCorpus:
        return GrammarCorpus(self.training_sentences, self.seed)
