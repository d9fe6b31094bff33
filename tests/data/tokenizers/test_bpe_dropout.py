"""BPE-dropout: segmentations without dropout, and the probabilities of algorithm 1 with it."""

from collections import Counter

import pytest

from transformer_jax.data.tokenizers.subword import train_subword_tokenizer

TAG = "<2de>"


@pytest.fixture(scope="module")
def tokenizer():
    text = ["ab cd", "abcd ab", "cdab cd", "a b c d"] * 50
    # The characters, and the merges ab and cd.
    tokenizer = train_subword_tokenizer("bpe", text, 4 + 256 + 1 + 5 + 2, 1.0, [TAG])
    assert {"ab", "cd"} <= set(tokenizer.pieces(range(tokenizer.vocabulary_size)))
    return tokenizer


@pytest.mark.parametrize(
    "text", ["", " ", "abcd", "  ab  cd ", f"{TAG} ab", f"ab {TAG}cd {TAG}", f"ab{TAG}", "é日\u2581\x1b ab", "\t\n🙂"]
)
def test_without_dropout_ids_are_those_of_sentencepiece_and_with_it_the_text_is_the_same(tokenizer, text):
    assert tokenizer.encode_with_dropout(text, 0.0, 1) == tokenizer.encode(text)
    for seed in range(9):
        assert tokenizer.decode(tokenizer.encode_with_dropout(text, 0.5, seed)) == text


def test_a_merge_that_a_step_left_out_is_tried_again_in_the_next(tokenizer):
    number = 4000
    segmentations = Counter(
        " ".join(tokenizer.pieces(tokenizer.encode_with_dropout("abcd", 0.5, seed))[-3:]) for seed in range(number)
    )
    # Both at once, or one of them and then the other: (1 - p)^2 (1 + p); neither in the first step:
    # p^2.
    whole = sum(count for pieces, count in segmentations.items() if pieces.endswith("ab cd"))
    assert whole / number == pytest.approx(0.375, abs=0.03)
    assert segmentations["b c d"] / number == pytest.approx(0.25, abs=0.03)
