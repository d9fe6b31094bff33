"""The byte tokenizer: every text comes back, and every id has a meaning."""

import pytest

from transformer_jax.config import DataError
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair, load_tokenizers, save_tokenizers
from transformer_jax.data.tokenizers.byte import ByteTokenizer

TEXT = "a \u00fc\u2028\U0001f600\r\n\x00"
TOKENIZER = ByteTokenizer()


def test_every_text_comes_back_as_one_id_a_byte():
    assert isinstance(TOKENIZER, Tokenizer)
    ids = TOKENIZER.encode(TEXT)
    assert TOKENIZER.decode([1, *ids, 2]) == TEXT
    assert len(ids) == len(TEXT.encode())
    assert min(ids) == 4 < max(ids) < TOKENIZER.vocabulary_size == 260
    assert b"".join(TOKENIZER.surfaces(TEXT)) == TEXT.encode()
    assert TOKENIZER.decode(ids[:3]) == "a \ufffd"
    assert TOKENIZER.pieces([2, 4 + 0x41]) == ["</s>", "<0x41>"]


def test_it_is_saved_like_any_other(tmp_path):
    save_tokenizers(TokenizerPair(TOKENIZER, TOKENIZER), tmp_path)
    loaded = load_tokenizers(tmp_path).source
    assert (loaded.kind, loaded.fingerprint()) == ("byte", TOKENIZER.fingerprint())
    with pytest.raises(DataError, match="not the vocabulary of a byte tokenizer"):
        ByteTokenizer.from_bytes(b"{}")
