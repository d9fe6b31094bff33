import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data import stores, token_store
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.stores import open_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import CharacterTokenizer

PAIRS = [("abc", "ba"), ("", "h"), ("dd d", "c")]


def ids_of(side, index):
    return side.sentences(np.array([index])).ids.tolist()


def the_only_store(folder):
    (store,) = (path for path in (folder / "token_stores").iterdir() if ".partial" not in path.name)
    return store


def test_sentences_end_with_eos_and_nothing_is_dropped_outside_training(store_of):
    store = store_of(PAIRS)
    assert store.num_pairs == 3
    sources, targets = ([ids_of(side, row) for row in range(3)] for side in (store.source_side, store.target_side))
    assert sources == [[4, 5, 6, EOS_ID], [EOS_ID], [7, 7, 12, 7, EOS_ID]]
    assert targets == [[5, 4, EOS_ID], [11, EOS_ID], [6, EOS_ID]]
    assert store.lengths().tolist() == [[4, 1, 5], [3, 2, 2]]
    assert store.lengths(2).tolist() == [[4, 1], [3, 2]]


@pytest.mark.parametrize(("vocabulary_size", "expected"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_ids_are_mapped_from_disk_in_the_smallest_type(listed_corpus, data_config, vocabulary_size, expected):
    characters = [chr(0x10000 + index) for index in range(vocabulary_size - 4)]
    tokenizer = CharacterTokenizer(characters)
    corpus = listed_corpus([(characters[-1], "a")])
    store = open_token_store(corpus, "train", TokenizerPair(tokenizer, tokenizer), data_config(), is_training=False)
    assert all(isinstance(numbers[:], np.memmap) for numbers in (store.source_side.ids, store.source_side.offsets))
    assert store.source_side.ids.dtype == expected
    assert ids_of(store.source_side, 0) == [vocabulary_size - 1, EOS_ID]


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


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("shards/0-of-1/source.ids/0", lambda file: file.write_bytes(file.read_bytes()[:-20])),
        ("shards/0-of-1/target.offsets/0", lambda file: file.unlink()),
        ("manifest.json", lambda file: file.write_text("")),
        ("manifest.json", flip_a_bit),
        ("shards/0-of-1/source.ids/0", flip_a_bit),
    ],
)
def test_a_damaged_store_is_built_again(store_of, tmp_path, name, damage, capsys):
    store_of(PAIRS)
    damage(the_only_store(tmp_path) / name)
    store = store_of(PAIRS)
    assert ids_of(store.source_side, 2) == [7, 7, 12, 7, EOS_ID]
    assert len(list((tmp_path / "token_stores").iterdir())) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_store_of_an_earlier_version_is_built_again_with_a_line(store_of, tmp_path, capsys):
    store_of(PAIRS)
    folder = the_only_store(tmp_path)
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "store.json").write_text("{}")
    assert store_of(PAIRS).num_pairs == 3 and not (folder / "store.json").exists()
    assert re.fullmatch(r".*/train-\w+: damaged, or of another version; builds it again .*\n", capsys.readouterr().err)


def test_ids_of_a_type_that_is_no_number_are_never_mapped(store_of, tmp_path):
    store_of(PAIRS)
    manifest = the_only_store(tmp_path) / "manifest.json"
    content = token_store.unsealed(manifest.read_text())
    # NumPy would take the bytes of the file for addresses of objects.
    content["parts"]["0-of-1"]["arrays"]["source.ids"]["dtype"] = "O"
    manifest.write_text(token_store.sealed(content))
    with (the_only_store(tmp_path) / "shards/0-of-1/source.ids/0").open("ab") as ids:
        ids.write(bytes(1000))
    assert store_of(PAIRS).source_side.ids.dtype == np.uint16


def test_a_block_of_a_large_store_is_checked_before_it_is_first_used(store_of, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHECKED_AT_ONCE", 0)
    monkeypatch.setattr(token_store, "BLOCK_BYTES", 8)
    store_of(PAIRS)
    folder = the_only_store(tmp_path)
    file = folder / "shards/0-of-1/source.ids/0"
    file.write_bytes(file.read_bytes().replace(np.uint16([7, 12]).tobytes(), np.uint16([7, 13]).tobytes()))
    store = store_of(PAIRS)
    assert ids_of(store.source_side, 0) == [4, 5, 6, EOS_ID] and folder.exists()
    with pytest.raises(DataError, match=r"shards/0-of-1 changed since .* run the same command to tokenize again"):
        ids_of(store.source_side, 2)
    assert not folder.exists() and ids_of(store_of(PAIRS).source_side, 2) == [7, 7, 12, 7, EOS_ID]


def test_of_two_builds_at_once_the_first_to_finish_stays(
    listed_corpus, letter_tokenizers, data_config, store_of, tmp_path
):
    corpus, files = listed_corpus(PAIRS), []
    pairs = list(corpus.pairs("train"))

    def pairs_while_another_builds(split):
        yield pairs[0]
        store_of(PAIRS)
        files.append((the_only_store(tmp_path) / "shards/0-of-1/source.ids/0").stat().st_ino)
        yield from pairs[1:]

    corpus.pairs = pairs_while_another_builds
    store = open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=False)
    assert store.num_pairs == 3 and len([*(tmp_path / "token_stores").iterdir()]) == 1
    assert (the_only_store(tmp_path) / "shards/0-of-1/source.ids/0").stat().st_ino == files[0]


BUILDS = """
import fcntl, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with open(f"{folder}.lock", "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print(flush=True)
    sys.stdin.read()
    folder.mkdir()
    (folder / "text").write_text("built")
"""


def test_a_process_waits_for_another_that_builds_the_store(tmp_path, monkeypatch):
    command = [sys.executable, "-c", BUILDS, tmp_path / "store"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        # The other builds when this process says that it waits.
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=lambda text: other.stdin.close()))
        read, write = (lambda folder: (folder / "text").read_text()), (lambda folder: pytest.fail("built twice"))
        assert stores.open_or_build(str(tmp_path), "store", read, write) == "built"


def test_what_cannot_be_stored_is_refused(store_of, listed_corpus, letter_tokenizers, data_config, tmp_path):
    with pytest.raises(DataError, match="2 of 3: source above 2 tokens"):
        store_of(PAIRS, is_training=True, max_source_tokens=2)
    (tmp_path / "file").write_text("")
    config = data_config(cache_directory=str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"data\.cache_directory"):
        open_token_store(listed_corpus(PAIRS), "train", letter_tokenizers, config, is_training=True)


def test_an_interrupted_build_leaves_nothing(listed_corpus, letter_tokenizers, data_config, tmp_path):
    corpus = listed_corpus(PAIRS)

    def broken_pairs(split):
        yield SentencePair("a", "b")
        raise DataError("line 2")

    corpus.pairs = broken_pairs
    with pytest.raises(DataError, match="line 2"):
        open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=True)
    assert list((tmp_path / "token_stores").iterdir()) == []
