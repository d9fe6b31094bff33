import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from transformer_jax.array_types import EOS_ID
from transformer_jax.config import DataError
from transformer_jax.data import cached_stores
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.token_store import open_token_store
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import CharacterTokenizer

PAIRS = [("abc", "ba"), ("", "h"), ("dd d", "c")]


def ids_of(side, index):
    return side.sentences(np.array([index])).ids.tolist()


def the_only_store(folder):
    (store,) = (path for path in (folder / "token_stores").iterdir() if cached_stores.PARTIAL not in path.name)
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
    assert isinstance(store.source_side.ids, np.memmap) and isinstance(store.source_side.offsets, np.memmap)
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
        ("source.ids", lambda file: file.write_bytes(file.read_bytes()[:-2])),
        ("target.offsets", lambda file: file.unlink()),
        ("store.json", lambda file: file.write_text("")),
        ("source.ids", flip_a_bit),
    ],
)
def test_a_damaged_store_is_built_again(store_of, tmp_path, name, damage):
    store_of(PAIRS)
    damage(the_only_store(tmp_path) / name)
    store = store_of(PAIRS)
    assert ids_of(store.source_side, 2) == [7, 7, 12, 7, EOS_ID]
    assert len(list((tmp_path / "token_stores").iterdir())) == 1


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
    corpus, files = listed_corpus(PAIRS), []
    pairs = list(corpus.pairs("train"))

    def pairs_while_another_builds(split):
        yield pairs[0]
        store_of(PAIRS)
        files.append((the_only_store(tmp_path) / "source.ids").stat().st_ino)
        yield from pairs[1:]

    corpus.pairs = pairs_while_another_builds
    store = open_token_store(corpus, "train", letter_tokenizers, data_config(), is_training=False)
    assert store.num_pairs == 3 and len([*(tmp_path / "token_stores").iterdir()]) == 1
    assert (the_only_store(tmp_path) / "source.ids").stat().st_ino == files[0]


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
        assert cached_stores.open_or_build(str(tmp_path), "store", read, write) == "built"


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
