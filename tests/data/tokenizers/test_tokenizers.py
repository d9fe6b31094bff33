import json
import re
from collections import Counter

import pytest

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import ConfigError, DataError, TokenizerConfig
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.tokenizers import load_tokenizers, save_tokenizers, tokenizer_from_bytes
from transformer_jax.data.tokenizers.listed import ByteTokenizer, CharacterTokenizer, LowerWordTokenizer, WordTokenizer
from transformer_jax.data.tokenizers.subword import train_subword_tokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import BYTE_MARK
from transformer_jax.data.tokenizers.tokenizer_training import sample_examples, train_tokenizers

HARD = [
    "",
    " ",
    "   ",
    " leading and trailing  ",
    "double  and   triple",
    "carriage\rreturn and \u2028 line \u2029 paragraph \x85 next line",
    "literal \u2581 lower\u2581block \u2581\u2581",
    "\x1b escape \x1b0 \x1b1 \x1b\u2581 \x1b\x1b",
    "e\u0301 is not \u00e9, \u1e9b\u0323 \u0041\u030a \u212b \ufb01",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22 \u4e2d\u6587 \U00020000",
    "<s> </s> <unk> <pad> <0x41> [UNK] ",
    "\ufeff byte order mark \ufffd \u2047 \u2585 \ue000 \U0010ffff",
    "\x00\x01\x7f\n",
    " a  b\u00a0 c ",
]
SENTENCES = [
    "the old dog sees the small house",
    "der alte Hund sieht das kleine Haus",
    "a small dog, two old houses and the dogs",
    "ein kleiner Hund; zwei alte Häuser und die Hunde",
    "the dog sleeps in the old house",
    "der Hund schläft im alten Haus",
]


PAIRS = list(zip(SENTENCES[::2], SENTENCES[1::2], strict=True))


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def subword(request):
    return train_subword_tokenizer(request.param, SENTENCES, 300)


def test_round_trip_of_hard_text(subword):
    for text in HARD:
        assert subword.decode(subword.encode(text)) == text
        assert subword.encode_batch([text]) == [subword.encode(text)]
    assert subword.encode_batch(HARD) == list(map(subword.encode, HARD))
    for tokenizer in (WordTokenizer.train(HARD, 10_000), CharacterTokenizer.train(HARD, 10_000)):
        assert [tokenizer.decode(tokenizer.encode(text)) for text in HARD] == HARD
        assert all(UNK_ID not in tokenizer.encode(text) for text in HARD)


@pytest.mark.parametrize("kind", [WordTokenizer, LowerWordTokenizer])
def test_marks_belong_to_their_words_but_not_in_tokenizers_of_earlier_versions(kind):
    text = "हिन्दी भाषा e\u0301te\u0301"
    units = [unit.strip() for unit in kind([]).split(text)]
    assert units == text.split()
    older = kind.from_bytes(b'{"kind": "word", "units": ["a"]}')
    assert len(older.split(text)) > 6 and json.loads(older.to_bytes())["units"] == ["a"]
    for tokenizer in (older, kind(["a"])):
        again = kind.from_bytes(tokenizer.to_bytes())
        assert again.split(text) == tokenizer.split(text) and again.fingerprint() == tokenizer.fingerprint()


def test_special_ids_are_reserved_and_left_out(subword):
    assert subword.pieces([PAD_ID, BOS_ID, EOS_ID, UNK_ID]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert min(min(ids) for ids in subword.encode_batch(["<s> <pad> <unk>", *SENTENCES])) > UNK_ID
    ids = subword.encode(" the dog")
    assert subword.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == " the dog"
    assert subword.encode("dog dog") == subword.encode("dog") * 2, "a first word is the same piece as elsewhere"
    first_byte = subword.encode("\u4e2d")[-3:][0]
    assert subword.decode([first_byte]) == "\ufffd"


def test_training_is_deterministic(subword):
    again = train_subword_tokenizer(subword.kind, iter(SENTENCES), 300)
    assert again.fingerprint() == subword.fingerprint()
    assert train_subword_tokenizer(subword.kind, SENTENCES, 299).fingerprint() != subword.fingerprint()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (8000, r"tokenizer\.vocabulary_size: 8000 is more than .* set it to (\d+) or less"),
        (100, r"tokenizer\.vocabulary_size: 100 is too small.* need (\d+)"),
    ],
)
def test_a_vocabulary_that_is_not_possible_names_the_nearest(subword, size, message, capfd):
    with pytest.raises(ConfigError) as caught:
        train_subword_tokenizer(subword.kind, SENTENCES, size)
    nearest = int(re.fullmatch(message, str(caught.value))[1]) + (size == 100)
    assert train_subword_tokenizer(subword.kind, SENTENCES, nearest).vocabulary_size == nearest
    assert capfd.readouterr() == ("", ""), "sentencepiece is silent"


def test_sample_is_uniform_over_the_whole_stream_and_seeded(monkeypatch):
    pairs = [SentencePair(str(number), "") for number in range(100)]
    counts = Counter(pair.source for seed in range(200) for pair in sample_examples(iter(pairs), 10, seed))
    assert len(counts) == 100
    assert max(counts.values()) < 45  # 20 expected, standard deviation 4
    assert min(counts.values()) > 3
    assert sample_examples(iter(pairs), 10, 1) == sample_examples(iter(pairs), 10, 1)
    assert sample_examples(iter(pairs), 1000, 1) == pairs
    monkeypatch.setattr("transformer_jax.data.tokenizers.tokenizer_training.MAX_SAMPLED", 100)
    assert 0 < len(sample_examples(iter(pairs), 1000, 1)) < len(pairs)


@pytest.mark.parametrize("pairs", [[], [("", "x")], [("x", " \t")]])
def test_a_side_without_text(listed_corpus, pairs):
    with pytest.raises(DataError, match="split 'train': no (source|target) sentence with any text"):
        train_tokenizers(TokenizerConfig("bpe", 300), listed_corpus(pairs), "train", 0)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character", "byte"])
def test_saved_and_loaded(listed_corpus, tmp_path, kind, joint):
    config = TokenizerConfig(kind, 290 if joint and kind == "bpe" else 286 if joint else 282, joint=joint)
    pair = train_tokenizers(config, listed_corpus(PAIRS), "train", 0)
    save_tokenizers(pair, tmp_path / "tokenizer")
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file()
    loaded = load_tokenizers(tmp_path / "tokenizer")
    assert (loaded.source is loaded.target) == joint
    for before, after in zip(pair, loaded, strict=True):
        for copy in (after, tokenizer_from_bytes(before.kind, before.to_bytes())):
            assert copy.kind == kind and copy.fingerprint() == before.fingerprint()
            assert copy.vocabulary_size == before.vocabulary_size
            assert copy.encode_batch(SENTENCES) == before.encode_batch(SENTENCES)


def test_damaged_or_missing_files_are_named(listed_corpus, tmp_path):
    save_tokenizers(train_tokenizers(TokenizerConfig("bpe", 290), listed_corpus(PAIRS), "train", 0), tmp_path)
    model = tmp_path / "tokenizer.joint.model"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"tokenizer\.joint\.model: the content is not what"):
        load_tokenizers(tmp_path)
    model.unlink()
    with pytest.raises(DataError, match=r"tokenizer\.joint\.model: cannot read"):
        load_tokenizers(tmp_path)
    description = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(description | {"format_version": 99}))
    with pytest.raises(DataError, match="format 99"):
        load_tokenizers(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(DataError, match="not the description"):
        load_tokenizers(tmp_path)
    for kind, message in (
        ("bpe", "not a sentencepiece model"),
        ("word", "not the vocabulary of a word"),
        ("byte", "not the vocabulary of a byte"),
        ("wrod", "unknown kind"),
    ):
        with pytest.raises(DataError, match=message):
            tokenizer_from_bytes(kind, b"nonsense")


def test_bytes_come_back_as_one_id_each():
    text, tokenizer = "a \u00fc\u2028\U0001f600\r\n\x00", ByteTokenizer()
    ids = tokenizer.encode(text)
    assert tokenizer.decode([1, *ids, 2]) == text
    assert len(ids) == len(text.encode())
    assert min(ids) == 4 < max(ids) < tokenizer.vocabulary_size == 260
    assert b"".join(tokenizer.surfaces(text)) == text.encode()
    assert tokenizer.decode(ids[:3]) == "a \ufffd"
    assert tokenizer.pieces([2, 4 + 0x41]) == ["</s>", "<0x41>"]


@pytest.mark.parametrize("text", ["犬 🐈 x", "שלום", "ไทย e\u0301 👩\u200d👧", "A"])
def test_a_character_of_several_bytes_is_shown_once(text):
    shown = ByteTokenizer().shown(ByteTokenizer().encode(text))
    assert "".join(item for item in shown if item != BYTE_MARK) == text.replace("\u200d", "<U+200D>")
    assert len(shown) == len(text.encode())
    lead = ByteTokenizer().encode("犬")[0]
    assert ByteTokenizer().shown([lead, lead, *ByteTokenizer().encode("a")]) == [BYTE_MARK, BYTE_MARK, "a"]
    assert ByteTokenizer().shown([4 + 0x80, 4 + 0xFF, 4 + 0x20]) == ["\ufffd", BYTE_MARK, " "]
