"""Samples meanings for the embedded corpus, with some combinations of words only in the validation and test splits."""

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from transformer_jax.data.synthetic import lexicon
from transformer_jax.data.synthetic.grammar_meanings import Adjunct, Clause, Couple, Name, NounPhrase, Phrase, Sentence
from transformer_jax.data.synthetic.lexicon import Adjective, Determiner, Noun, Pronoun, Verb
from transformer_jax.data.synthetic.symbols import held_out_split

AnyWord = TypeVar("AnyWord", Noun, Verb, Adjective)
_DEFINITE = tuple(
    row for row in lexicon.DETERMINERS if row.declension == "definite" or row.english in ("this", "my", "our")
)
_QUESTION_FRAMES = ("none", "none", "animate", "thing", "any", "dative", "direction")
_SIMPLE_FRAMES = (*_QUESTION_FRAMES, "quality")
_MAIN_FRAMES = (*_SIMPLE_FRAMES, "any", "both", "clause", "infinitive")
_KINDS = {"statement": 11, "question": 3, "subordinate_first": 3, "subordinate_last": 3, "coordination": 2}


@cache
def combination_split(first: str, second: str) -> str:
    """The split that owns a pair of English words (noun and verb, verb and object, adjective and noun): 9 of 10 are train's."""
    return held_out_split(f"{first}+{second}")


class MeaningSampler:
    """Draws the sentences of one split.

    A combination of words that belongs to another held-out split is never drawn. ``has_held_out`` says whether the sentence
    drawn last contains a combination that only this split has; it stays False for the training split.
    """

    def __init__(self, rng: random.Random, split: str) -> None:
        self._rng = rng
        self._split = split
        self.has_held_out = False

    def sentence(self) -> Sentence:
        """The next meaning."""
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
        """One of ``words`` that this split may combine with ``partner``."""
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
        """Manner, company and place, each with some probability."""
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
            return self._rng.choice((lexicon.PRONOUNS[0], *lexicon.PRONOUNS))  # "I" twice: its verb forms are its own
        if draw < 0.28:
            return self._name()
        noun = self._fitting(lexicon.ANIMATES, verb)
        if draw < 0.34 and is_rich:
            return Couple(self._name(), self._noun_phrase(noun))
        if draw < 0.44 and is_rich:
            return self._noun_phrase(noun, adjective_chance=0.1)._replace(possessor=None, relative=self._relative(noun))
        return self._noun_phrase(noun)

    def _relative(self, noun: Noun) -> Clause:
        """A relative clause on a subject: ``who sleeps``, ``who loves the cat``."""
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
        determiner = self._rng.choice(_DEFINITE)
        plural = self._chance(0.2)
        return NounPhrase(determiner, None, self._rng.choice(lexicon.ANIMATES), plural)
