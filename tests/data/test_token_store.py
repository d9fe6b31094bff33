import json

import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data import cached_stores, store_check
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.token_store import open_token_store
from transformer_jax.data.tokenizers import TokenizerPair, pair_encoding
from transformer_jax.data.tokenizers.listed import CharacterTokenizer
from transformer_jax.data.tokenizers.pair_encoding import encoded_chunks

PAIRS = [("abc", "ba"), ("", "h"), ("dd d", "c")]


def the_only_store(folder):
    (store,) = (folder / "token_stores").iterdir()
    return store


def test_sentences_end_with_eos_and_nothing_is_dropped_outside_training(store_of):
    store = store_of(PAIRS)
    assert store.num_pairs == 3
    assert [store.source(index).tolist() for index in range(3)] == [[4, 5, 6, EOS_ID], [EOS_ID], [7, 7, 12, 7, EOS_ID]]
    assert [store.target(index).tolist() for index in range(3)] == [[5, 4, EOS_ID], [11, EOS_ID], [6, EOS_ID]]
    assert store.source_lengths.tolist() == [4, 1, 5]
    assert store.target_lengths.tolist() == [3, 2, 2]


def test_some_sentences_are_read_together(store_of):
    ids, lengths = store_of(PAIRS).source_side.sentences(np.array([2, 1, 2]))
    assert ids.tolist() == [7, 7, 12, 7, EOS_ID, EOS_ID, 7, 7, 12, 7, EOS_ID]
    assert lengths.tolist() == [5, 1, 5]
    ids, lengths = store_of(PAIRS).source_side.sentences(np.zeros(0, np.int64))
    assert ids.dtype == np.int32 and not len(ids) and not len(lengths)


@pytest.mark.parametrize(("vocabulary_size", "expected"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_ids_are_mapped_from_disk_in_the_smallest_type(listed_corpus, data_config, vocabulary_size, expected):
    characters = [chr(0x10000 + index) for index in range(vocabulary_size - 4)]
    tokenizer = CharacterTokenizer(characters)
    last = vocabulary_size - 1
    corpus = listed_corpus([(characters[-1], "a")])
    store = open_token_store(corpus, "train", TokenizerPair(tokenizer, tokenizer), data_config(), is_training=False)
    assert isinstance(store.source_side.ids, np.memmap)
    assert isinstance(store.source_side.offsets, np.memmap)
    assert store.source_side.ids.dtype == expected
    assert store.source(0).dtype == np.int32
    assert store.source(0).tolist() == [last, EOS_ID]


def test_a_second_opening_reads_no_text(listed_corpus, letter_tokenizers, data_config):
    corpus = listed_corpus(PAIRS)
    first = open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=True)
    again = open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=True)
    assert corpus.times_read == 1
    assert again.statistics == first.statistics
    np.testing.assert_array_equal(again.source_side.ids, first.source_side.ids)


def test_other_content_is_another_store(listed_corpus, letter_tokenizers, data_config, tmp_path):
    def open_one(pairs=PAIRS, tokenizers=letter_tokenizers, split="train", is_training=True, **settings):
        corpus = listed_corpus(pairs)
        open_token_store(corpus, split, tokenizers, data_config(**settings), is_training=is_training)
        return corpus.times_read

    others = CharacterTokenizer("hgfedcba ")
    assert open_one() == 1
    assert open_one() == 0
    assert open_one(pairs=[*PAIRS[:2], ("dd d", "cc")]) == 1
    assert open_one(tokenizers=TokenizerPair(letter_tokenizers.source, others)) == 1
    assert open_one(split="a/b") == 1
    assert open_one(is_training=False) == 1
    assert open_one(max_source_tokens=7) == 1
    assert open_one(max_source_tokens=8, is_training=False) == 0, "no filters, so their settings do not matter"
    assert len(list((tmp_path / "token_stores").iterdir())) == 6


def truncate(folder):
    ids = folder / "source.ids"
    ids.write_bytes(ids.read_bytes()[:-2])


def lose_a_file(folder):
    (folder / "target.offsets").unlink()


def empty_the_description(folder):
    (folder / "store.json").write_text("")


def spoil_the_description(folder):
    (folder / "store.json").write_text(json.dumps({"statistics": 3}))


def flip_a_bit_of(name):
    def flip(folder):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return flip


DAMAGES = [truncate, lose_a_file, empty_the_description, spoil_the_description]


@pytest.mark.parametrize("damage", [*DAMAGES, *map(flip_a_bit_of, ("source.ids", "source.offsets", "store.json"))])
def test_a_damaged_store_is_built_again(store_of, tmp_path, damage):
    store_of(PAIRS)
    damage(the_only_store(tmp_path))
    store = store_of(PAIRS)
    assert store.source(2).tolist() == [7, 7, 12, 7, EOS_ID]
    assert len(list((tmp_path / "token_stores").iterdir())) == 1


def test_a_large_store_is_checked_whole_in_the_background(store_of, tmp_path, monkeypatch):
    store_of(PAIRS)
    monkeypatch.setattr(store_check, "CHECKED_AT_ONCE", 0)
    monkeypatch.setattr(store_check, "SAMPLED_SEGMENTS", 0)
    store_of(PAIRS).check.finish()
    flip_a_bit_of("target.ids")(the_only_store(tmp_path))
    with pytest.raises(DataError, match="target.ids changed .* the same command tokenizes again"):
        store_of(PAIRS).check.finish()
    store = store_of(PAIRS)
    store.check.finish()
    assert store.target(0).tolist() == [5, 4, EOS_ID]


def test_an_interrupted_build_leaves_nothing_that_is_used(listed_corpus, letter_tokenizers, data_config, tmp_path):
    corpus = listed_corpus(PAIRS)

    def broken_pairs(split):
        yield SentencePair("a", "b")
        raise DataError("line 2")

    corpus.pairs = broken_pairs
    with pytest.raises(DataError, match="line 2"):
        open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=True)
    assert list((tmp_path / "token_stores").iterdir()) == []
    del corpus.pairs
    assert open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=False).num_pairs == 3


def test_what_a_killed_build_left_is_removed_after_a_day(store_of, tmp_path, monkeypatch):
    left = tmp_path / "token_stores" / f"train-0{cached_stores.PARTIAL}1"
    left.mkdir(parents=True)
    store_of(PAIRS)
    assert left.exists(), "perhaps another process is writing it"
    monkeypatch.setattr(cached_stores, "ABANDONED_SECONDS", -1)
    store_of(PAIRS[:2])
    assert not left.exists()


def test_ids_of_a_type_that_is_no_number_are_never_mapped(store_of, tmp_path):
    store_of(PAIRS)
    description = the_only_store(tmp_path) / "store.json"
    content = json.loads(description.read_text())
    # NumPy would take the bytes of the file for addresses of objects.
    content["id_types"]["source"] = "O"
    description.write_text(json.dumps(content))
    with (the_only_store(tmp_path) / "source.ids").open("ab") as ids:
        ids.write(bytes(1000))
    (the_only_store(tmp_path) / "digests.json").unlink()
    assert store_of(PAIRS).source_side.ids.dtype == np.uint16


def test_of_two_builds_at_once_the_first_to_finish_stays(
    listed_corpus, letter_tokenizers, data_config, store_of, tmp_path
):
    corpus = listed_corpus(PAIRS)
    files = []

    def pairs_while_another_builds(split):
        yield from PAIRS_OF_CORPUS[:1]
        store_of(PAIRS)
        files.append((the_only_finished(tmp_path) / "source.ids").stat().st_ino)
        yield from PAIRS_OF_CORPUS[1:]

    PAIRS_OF_CORPUS = list(corpus.pairs("train"))
    corpus.pairs = pairs_while_another_builds
    store = open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=False)
    assert store.num_pairs == 3
    assert (the_only_store(tmp_path) / "source.ids").stat().st_ino == files[0]


def the_only_finished(folder):
    (store,) = (path for path in (folder / "token_stores").iterdir() if cached_stores.PARTIAL not in path.name)
    return store


def test_an_unwritable_cache_names_the_setting(listed_corpus, letter_tokenizers, data_config, tmp_path):
    (tmp_path / "file").write_text("")
    config = data_config(cache_directory=str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"data\.cache_directory"):
        open_token_store(listed_corpus(PAIRS), "train", letter_tokenizers, config, is_training=True)


def test_nothing_left_says_why(store_of):
    with pytest.raises(DataError, match="2 of 3: source above 2 tokens"):
        store_of(PAIRS, is_training=True, max_source_tokens=2)


def test_a_megabyte_in_a_test_sentence_is_kept_whole(store_of):
    store = store_of([("a" * 1_000_001, "b")])
    assert store.source_lengths.tolist() == [1_000_002]


@pytest.mark.parametrize("filtering", [True, False])
def test_workers_encode_as_this_process_does(letter_tokenizers, data_config, monkeypatch, filtering):
    monkeypatch.setattr(pair_encoding, "CHUNK_PAIRS", 3)
    pairs = [SentencePair("abcdefgh"[: 1 + index % 8], "ab" * (index % 4)) for index in range(40)]
    config = data_config(max_source_tokens=6) if filtering else None

    def encode(chunks_without_workers):
        monkeypatch.setattr(pair_encoding, "CHUNKS_WITHOUT_WORKERS", chunks_without_workers)
        return list(encoded_chunks(iter(pairs), letter_tokenizers, config, num_workers=2))

    here, there = encode(1000), encode(1)
    assert len(here) == 14
    for one, other in zip(here, there, strict=True):
        assert (one.read, one.dropped) == (other.read, other.dropped)
        for side, other_side in ((one.source, other.source), (one.target, other.target)):
            np.testing.assert_array_equal(side.ids, other_side.ids)
            np.testing.assert_array_equal(side.lengths, other_side.lengths)
            assert side.ids.dtype == other_side.ids.dtype


def test_a_worker_that_dies_is_an_error_and_not_a_wait(letter_tokenizers, monkeypatch):
    monkeypatch.setattr(pair_encoding, "CHUNKS_WITHOUT_WORKERS", 0)
    monkeypatch.setattr(CharacterTokenizer, "kind", "a kind that no worker knows")
    with pytest.raises(DataError, match="a process that tokenized has died"):
        list(encoded_chunks(iter([SentencePair("a", "b")]), letter_tokenizers, None, num_workers=1))


def test_memory_is_bounded_by_characters_as_well_as_by_pairs(letter_tokenizers, monkeypatch):
    monkeypatch.setattr(pair_encoding, "CHUNK_CHARACTERS", 10)
    pairs = [SentencePair("aaaa", "bb")] * 5
    assert [chunk.read for chunk in encoded_chunks(iter(pairs), letter_tokenizers, None)] == [2, 2, 1]
