"""The tokenizer that comes with imported models."""

import pytest

from transformer_jax.config import ConfigError, TokenizerConfig
from transformer_jax.data.tokenizers import tokenizer_from_bytes
from transformer_jax.data.tokenizers.subword import MappedSubwordTokenizer, train_subword_tokenizer
from transformer_jax.data.tokenizers.tokenizer_training import train_tokenizer

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
TEXT = ["the cat sat on the mat", "a dog sat on a cat"] * 20


@pytest.fixture(scope="module")
def learned():
    return train_subword_tokenizer("bpe", TEXT, 300)


def test_ids_are_those_of_the_list_and_a_prefix_goes_first(learned):
    pieces = [*SPECIAL, "__en__", *reversed(learned.pieces(range(4, 300)))]
    mapped = MappedSubwordTokenizer(learned.to_bytes(), pieces, ["__en__"])
    ids = mapped.encode("the cat")
    assert mapped.pieces(ids) == ["__en__", *learned.pieces(learned.encode("the cat"))]
    assert ids[1] == 5 + 295 - (learned.encode("the cat")[0] - 4)
    assert mapped.decode([*ids, 2]) == "the cat"


def test_bytes_are_enough(learned):
    mapped = MappedSubwordTokenizer(learned.to_bytes(), [*SPECIAL, *learned.pieces(range(4, 300))])
    again = tokenizer_from_bytes(mapped.kind, mapped.to_bytes())
    assert again.fingerprint() == mapped.fingerprint()
    assert again.encode_batch(TEXT) == mapped.encode_batch(TEXT)


def test_it_is_not_trained():
    with pytest.raises(ConfigError, match=r"comes with an imported model; adopt it with --config.init.run"):
        train_tokenizer(TokenizerConfig(kind="mapped"), TEXT)
