"""The words of the embedded English-German corpus, with their grammatical properties."""

from importlib.resources import files
from typing import NamedTuple

ANIMATE, THING, PLACE = "animate", "thing", "place"


class Noun(NamedTuple):
    """A noun; ``genitive`` is singular. ``weak``: other singular cases equal the plural."""

    kind: str
    english: str
    english_plural: str
    gender: str
    german: str
    genitive: str
    german_plural: str
    weak: bool


class Verb(NamedTuple):
    """A verb; ``objects`` is a key of ``VERBS``; ``prefix`` is separable or empty.

    ``plural`` is also the infinitive without its prefix. ``being``: the perfect has "sein".
    """

    objects: str
    english: str
    english_third: str
    english_participle: str
    prefix: str
    plural: str
    third: str
    first: str
    participle: str
    being: bool


class Adjective(NamedTuple):
    """An adjective; ``german`` is the stem, which is also the form without ending."""

    english: str
    german: str


class Determiner(NamedTuple):
    """A determiner with the endings (``declension``) of itself and of an adjective after it."""

    weight: int
    english: str
    english_plural: str
    german: str
    declension: str


class Pronoun(NamedTuple):
    """A pronoun, in the ``person`` ``first`` or ``third`` of the singular, or ``plural``."""

    english: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    person: str


class Preposition(NamedTuple):
    """German preposition, its case, and fusions with the article ("in" + "dem" = "im")."""

    english: str
    german: str
    case: str
    fused: tuple[tuple[str, str], ...] = ()


def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in files(__package__).joinpath("lexicon.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            entries = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            entries += map(str.strip, line.split(";"))
    return sections


_SECTIONS = _sections()


def _phrases(section: str) -> tuple[tuple[str, str], ...]:
    pairs = (entry.partition(" = ") for entry in _SECTIONS[f"phrase {section}"])
    return tuple((english, german) for english, _, german in pairs)


def _nouns(kind: str) -> tuple[Noun, ...]:
    nouns = []
    for entry in _SECTIONS[f"noun {kind}"]:
        english, plural, gender, german, genitive, german_plural, *rest = entry.split()
        genitive = german if genitive == "-" else genitive
        nouns.append(Noun(kind, english, plural, gender, german, genitive, german_plural, rest == ["weak"]))
    return tuple(nouns)


def _verbs(objects: str) -> tuple[Verb, ...]:
    verbs = []
    for entry in _SECTIONS[f"verb {objects}"]:
        english, english_third, past, infinitive, third, first, participle = entry.removesuffix(" sein").split()
        prefix, _, plural = infinitive.rpartition("=")
        forms = prefix, plural, third, first, participle
        verbs.append(Verb(objects, english, english_third, past, *forms, entry.endswith(" sein")))
    return tuple(verbs)


def _adjectives(kind: str) -> tuple[Adjective, ...]:
    return tuple(Adjective(*entry.split()) for entry in _SECTIONS[f"adjective {kind}"])


PAST_TIMES = _phrases("past_times")
TIMES = (*PAST_TIMES, *_phrases("other_times"))
FREQUENCIES = _phrases("frequencies")
MANNERS = _phrases("manners")
SUBORDINATORS = _phrases("subordinators")
COORDINATORS = _phrases("coordinators")
QUESTION_WORDS = _phrases("question_words")
NAMES = "Anna", "Peter", "Maria", "Paul", "Clara", "Robert", "Julia", "Martin"
MODALS = (  # english, german first person, third person, plural
    ("can", "kann", "kann", "können"), ("must", "muss", "muss", "müssen"), ("should", "soll", "soll", "sollen"),
    ("may", "darf", "darf", "dürfen"),
)  # fmt: skip
FUTURE = ("will", "werde", "wird", "werden")
PLACE_PREPOSITIONS = (
    Preposition("in", "in", "dative", (("m", "im"), ("n", "im"))),
    Preposition("behind", "hinter", "dative"),
    Preposition("near", "bei", "dative", (("m", "beim"), ("n", "beim"))),
    Preposition("in front of", "vor", "dative"),
    Preposition("beside", "neben", "dative"),
)
DIRECTION_PREPOSITIONS = (
    Preposition("to", "zu", "dative", (("m", "zum"), ("n", "zum"), ("f", "zur"))),
    Preposition("through", "durch", "accusative"),
    Preposition("into", "in", "accusative", (("n", "ins"),)),
)
COMPANION_PREPOSITIONS = (
    Preposition("with", "mit", "dative"),
    Preposition("without", "ohne", "accusative"),
    Preposition("for", "für", "accusative"),
)

BE = Verb("quality", "are", "is", "been", "", "sind", "ist", "bin", "gewesen", True)
DETERMINERS = (
    Determiner(8, "the", "the", "", "definite"),
    Determiner(4, "a", "", "ein", "ein"),
    Determiner(2, "this", "these", "dies", "der"),
    Determiner(1, "every", "", "jed", "der"),
    Determiner(2, "my", "my", "mein", "ein"),
    Determiner(1, "our", "our", "unser", "ein"),
    Determiner(1, "his", "his", "sein", "ein"),
    Determiner(1, "her", "her", "ihr", "ein"),
    Determiner(1, "no", "no", "kein", "ein"),
    Determiner(1, "", "many", "viel", "strong"),
    Determiner(1, "", "some", "einig", "strong"),
    Determiner(1, "", "two", "zwei", "number"),
    Determiner(1, "", "three", "drei", "number"),
)
PRONOUNS = (
    Pronoun("I", "me", "ich", "mich", "mir", "first"),
    Pronoun("he", "him", "er", "ihn", "ihm", "third"),
    Pronoun("she", "her", "sie", "sie", "ihr", "third"),
    Pronoun("we", "us", "wir", "uns", "uns", "plural"),
    Pronoun("they", "them", "sie", "sie", "ihnen", "plural"),
)
ANIMATES, THINGS, PLACES = _nouns(ANIMATE), _nouns(THING), _nouns(PLACE)
VERBS = {name: _verbs(name) for kind, _, name in (section.partition(" ") for section in _SECTIONS) if kind == "verb"}
_EVERY, _OTHER = _adjectives("any"), _adjectives("other")
ADJECTIVES = {ANIMATE: _EVERY + _adjectives("animate"), THING: _EVERY + _OTHER, PLACE: _EVERY + _OTHER}
