import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.synthetic import lexicon
from transformer_jax.data.synthetic.grammar import (
    MAX_WORDS,
    MIN_WORDS,
    Clause,
    GrammarCorpus,
    NounPhrase,
    Sentence,
    combination_split,
    english,
    german,
)

NOUNS = {noun.english: noun for noun in lexicon.ANIMATES + lexicon.THINGS + lexicon.PLACES}
VERBS = {verb.english: verb for verbs in lexicon.VERBS.values() for verb in verbs}
ADJECTIVES = {word.english: word for words in lexicon.ADJECTIVES.values() for word in words}
DETERMINERS = {row.english or row.english_plural: row for row in lexicon.DETERMINERS}
DIGESTS = {"train": "d6774b58359f3b8b", "validation": "5ea32b7802a8f8d0", "test": "44b9c145fe7167e6"}


GENERATE = """
import json, random
from transformer_jax.data.synthetic.grammar import GrammarCorpus, MeaningSampler, english, german

corpus = GrammarCorpus(8_000, seed=3)
splits = {split: list(corpus.pairs(split)) for split in ("train", "validation", "test")}
sampler = MeaningSampler(random.Random(2), "train")
meanings = [meaning for meaning in (sampler.sentence() for _ in range(30_000)) if meaning.second is None]
drawn = [pair for pair in ((english(meaning), german(meaning)) for meaning in meanings) if len(pair[0]) < 30]
print(json.dumps({"splits": splits, "drawn": drawn, "other_seed": list(GrammarCorpus(9, seed=4).pairs("test"))}))
"""


@pytest.fixture(scope="module")
def generated():
    """Made in a process of its own, where types are not checked: ten times faster."""
    root = Path(__file__).parents[3]
    made = subprocess.run([sys.executable, "-c", GENERATE], cwd=root, capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


@pytest.fixture(scope="module")
def splits(generated):
    return {split: [SentencePair(*pair) for pair in pairs] for split, pairs in generated["splits"].items()}


def all_words(pairs, side):
    return {word for pair in pairs for word in re.findall(r"[\w']+", pair[side])}


def phrase(text, adjective=None, plural=False, **more):
    determiner, noun = text.split()
    return NounPhrase(DETERMINERS[determiner], ADJECTIVES.get(adjective), NOUNS[noun], plural, **more)


def both(*arguments, **keywords):
    sentence = Sentence(*arguments, **keywords)
    return english(sentence), german(sentence)


def test_sizes_lengths_and_words(splits):
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 8_000, "validation": 500, "test": 500}
    sources = [pair.source for pairs in splits.values() for pair in pairs]
    lengths = [len(source.split()) for source in sources]
    assert min(lengths) >= MIN_WORDS and max(lengths) <= MAX_WORDS
    assert len(set(sources)) == len(sources), "no sentence occurs twice in a split or in two"
    for side in (0, 1):
        known = all_words(splits["train"], side)
        assert all_words(splits["test"], side) | all_words(splits["validation"], side) <= known
        assert 500 < len(known) < 1300


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
        if noun.kind == kind and combination_split(adjective.english, noun.english) == split
    }
    assert len(held_out) > 50
    assert len(held_out & neighbours[split]) > 20
    assert not held_out & neighbours["train"]


def test_every_english_sentence_has_one_translation(generated):
    drawn = generated["drawn"]
    translations = dict(drawn)
    assert len(drawn) - len(translations) > 25, "too few repeated sentences to tell"
    assert all(translations[source] == target for source, target in drawn)


def test_pure_function_of_the_seed_which_evaluation_ignores(generated, splits):
    first = list(GrammarCorpus(50, 3).pairs("train"))
    assert first == list(GrammarCorpus(50, 3).pairs("train")) == splits["train"][:50]
    assert first != list(GrammarCorpus(50, 4).pairs("train"))
    assert [tuple(pair) for pair in generated["other_seed"]] == splits["test"]


def test_the_sentences_of_earlier_versions_stay():
    """Stores and scores of old runs depend on them; the fingerprints are those of commit 912d005."""
    assert {split: GrammarCorpus(50, 0).fingerprint(split)[:16] for split in ("train", "validation", "test")} == DIGESTS
    assert GrammarCorpus(51, 0).fingerprint("train") != GrammarCorpus(50, 0).fingerprint("train")


def test_verb_second_and_separable_prefix():
    clause = Clause(phrase("the man"), VERBS["open"], direct=phrase("the door"), time=("today", "heute"))
    assert both("statement", clause) == ("The man opens the door today.", "Der Mann macht heute die Tür auf.")
    expected = "Today the man opens the door.", "Heute macht der Mann die Tür auf."
    assert both("statement", clause, time_first=True) == expected
    clause = clause._replace(time=None, negated=True)
    assert both("question", clause._replace(negated=False)) == (
        "Does the man open the door?",
        "Macht der Mann die Tür auf?",
    )
    assert both("statement", clause) == ("The man does not open the door.", "Der Mann macht die Tür nicht auf.")


def test_verb_last_in_subordinate_clauses():
    opens = Clause(phrase("the man"), VERBS["open"], direct=phrase("the door"))
    sleeps = Clause(phrase("the cat"), VERBS["sleep"])
    because = ("because", "weil")
    expected = "The cat sleeps because the man opens the door.", "Die Katze schläft, weil der Mann die Tür aufmacht."
    assert both("subordinate_last", sleeps, opens, because) == expected
    expected = "Because the man opens the door, the cat sleeps.", "Weil der Mann die Tür aufmacht, schläft die Katze."
    assert both("subordinate_first", sleeps, opens, because) == expected
    perfect = opens._replace(tense="perfect")
    assert (
        both("subordinate_last", sleeps, perfect, because)[1]
        == "Die Katze schläft, weil der Mann die Tür aufgemacht hat."
    )
