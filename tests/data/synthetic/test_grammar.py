import random
import re

import pytest

from transformer_jax.data.synthetic import grammar, lexicon
from transformer_jax.data.synthetic.grammar import Clause, GrammarCorpus, NounPhrase, Sentence, english, german

NOUNS = {noun.english: noun for noun in lexicon.ANIMATES + lexicon.THINGS + lexicon.PLACES}
DIGESTS = {"train": "d6774b58359f3b8b", "validation": "5ea32b7802a8f8d0", "test": "44b9c145fe7167e6"}


@pytest.fixture(scope="module")
def splits():
    corpus = GrammarCorpus(8_000, seed=3)
    return {split: list(corpus.pairs(split)) for split in DIGESTS}


def test_sizes_lengths_and_words(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 8_000, "validation": 500, "test": 500}
    sources = [pair.source for pairs in splits.values() for pair in pairs]
    lengths = [len(source.split()) for source in sources]
    assert min(lengths) >= grammar.MIN_WORDS and max(lengths) <= grammar.MAX_WORDS
    assert len(set(sources)) == len(sources), "no sentence occurs twice in a split or in two"
    for side in (0, 1):
        train, *others = (set(re.findall(r"[\w']+", " ".join(pair[side] for pair in splits[name]))) for name in DIGESTS)
        assert set.union(*others) <= train and 500 < len(train) < 1300


@pytest.mark.parametrize("split", ["validation", "test"])
def test_every_evaluation_sentence_has_an_adjective_or_verb_beside_a_noun_that_train_never_has(splits, split):
    """Checked on the text: the pairs of neighbours "adjective noun" that only the evaluation split has."""
    neighbours = {
        name: {pair for line in pairs for pair in re.findall(r"(?=\b(\w+) (\w+))", line.source)}
        for name, pairs in splits.items()
    }
    held_out = {
        (adjective.english, noun.english)
        for kind, adjectives in lexicon.ADJECTIVES.items()
        for adjective in adjectives
        for noun in NOUNS.values()
        if noun.kind == kind and grammar.combination_split(adjective.english, noun.english) == split
    }
    assert len(held_out) > 50 and len(held_out & neighbours[split]) > 20 and not held_out & neighbours["train"]


def test_every_english_sentence_has_one_translation():
    sampler = grammar.MeaningSampler(random.Random(2), "train")
    meanings = [meaning for meaning in (sampler.sentence() for _ in range(30_000)) if meaning.second is None]
    drawn = [pair for pair in ((english(meaning), german(meaning)) for meaning in meanings) if len(pair[0]) < 30]
    translations = dict(drawn)
    assert len(drawn) - len(translations) > 25, "too few repeated sentences to tell"
    assert all(translations[source] == target for source, target in drawn)


def test_pure_function_of_the_seed_which_evaluation_ignores(splits):
    first = list(GrammarCorpus(50, 3).pairs("train"))
    assert first == list(GrammarCorpus(50, 3).pairs("train")) == splits["train"][:50]
    assert first != list(GrammarCorpus(50, 4).pairs("train"))
    assert list(GrammarCorpus(9, seed=4).pairs("test")) == splits["test"]


def test_the_sentences_of_earlier_versions_stay():
    """Stores and scores of old runs depend on them; the fingerprints are those of commit 912d005."""
    assert {split: GrammarCorpus(50, 0).fingerprint(split)[:16] for split in ("train", "validation", "test")} == DIGESTS
    assert GrammarCorpus(51, 0).fingerprint("train") != GrammarCorpus(50, 0).fingerprint("train")


WORD_ORDER = """
The man opens the door today. Der Mann macht heute die Tür auf.
Today the man opens the door. Heute macht der Mann die Tür auf.
Does the man open the door? Macht der Mann die Tür auf?
The man does not open the door. Der Mann macht die Tür nicht auf.
The cat sleeps because the man opens the door. Die Katze schläft, weil der Mann die Tür aufmacht.
Because the man opens the door, the cat sleeps. Weil der Mann die Tür aufmacht, schläft die Katze.
The cat sleeps because the man has opened the door. Die Katze schläft, weil der Mann die Tür aufgemacht hat.
"""


def test_verb_second_verb_last_and_separable_prefix():
    the = {row.english or row.english_plural: row for row in lexicon.DETERMINERS}["the"]
    verbs = {verb.english: verb for verbs in lexicon.VERBS.values() for verb in verbs}
    man, door, cat = (NounPhrase(the, None, NOUNS[name], False) for name in ("man", "door", "cat"))
    today = Clause(man, verbs["open"], direct=door, time=("today", "heute"))
    opens, sleeps, because = today._replace(time=None), Clause(cat, verbs["sleep"]), ("because", "weil")
    found = [
        Sentence("statement", today),
        Sentence("statement", today, time_first=True),
        Sentence("question", opens),
        Sentence("statement", opens._replace(negated=True)),
        Sentence("subordinate_last", sleeps, opens, because),
        Sentence("subordinate_first", sleeps, opens, because),
        Sentence("subordinate_last", sleeps, opens._replace(tense="perfect"), because),
    ]
    assert [f"{english(each)} {german(each)}" for each in found] == WORD_ORDER.strip().split("\n")
