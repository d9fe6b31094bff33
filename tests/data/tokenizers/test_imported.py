"""Tokenizers that come with imported models."""

import pytest

from transformer_jax.config import ConfigError, TokenizerConfig
from transformer_jax.data.tokenizers import tokenizer_from_bytes, train_tokenizer
from transformer_jax.data.tokenizers.imported import BpeCodesTokenizer, MappedSubwordTokenizer, merged
from transformer_jax.data.tokenizers.subword import train_subword_tokenizer

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
TEXT = ["the cat sat on the mat", "a dog sat on a cat"] * 20


@pytest.fixture(scope="module")
def learned():
    return train_subword_tokenizer("bpe", TEXT, 300)


MERGES = [("l", "o"), ("lo", "w</w>"), ("e", "r</w>")]
CODES = BpeCodesTokenizer(MERGES, [*SPECIAL, "low", "lo@@", "w@@", "er", "n@@", "e@@"])


def test_the_first_learned_merge_comes_first_words_come_back_and_unknown_ones_are_marked():
    assert CODES.pieces(CODES.encode("low lower newer")) == ["low", "lo@@", "w@@", "er", "n@@", "e@@", "w@@", "er"]
    assert CODES.split("low  lo\u00a0w ") == ["low", "lo@@", "\u00a0@@", "w"]
    assert merged(["a", "b", "a", "b", "c"], ("a", "b")) == ["ab", "ab", "c"]
    assert CODES.decode(CODES.encode("low lower")) == "low lower"
    assert CODES.decode([*CODES.encode("low q"), 2]) == "low <unk>"
    assert b"".join(CODES.surfaces("low lower")) == b" low lower"


def test_ids_are_those_of_the_list_and_a_prefix_goes_first(learned):
    pieces = [*SPECIAL, "__en__", *reversed(learned.pieces(range(4, 300)))]
    mapped = MappedSubwordTokenizer(learned.to_bytes(), pieces, ["__en__"])
    ids = mapped.encode("the cat")
    assert mapped.pieces(ids) == ["__en__", *learned.pieces(learned.encode("the cat"))]
    assert ids[1] == 5 + 295 - (learned.encode("the cat")[0] - 4)
    assert mapped.decode([*ids, 2]) == "the cat"


def test_bytes_are_enough(learned):
    for made in (CODES, MappedSubwordTokenizer(learned.to_bytes(), [*SPECIAL, *learned.pieces(range(4, 300))])):
        again = tokenizer_from_bytes(made.kind, made.to_bytes())
        assert again.fingerprint() == made.fingerprint()
        assert again.encode_batch(TEXT) == made.encode_batch(TEXT)


def test_they_are_not_trained():
    for kind in ("mapped", "bpe_codes"):
        with pytest.raises(ConfigError, match=r"comes with an imported model; adopt it with --config.init.run"):
            train_tokenizer(TokenizerConfig(kind=kind), TEXT)
