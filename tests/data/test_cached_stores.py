"""A cache in an object store: what one machine tokenized, another downloads."""

import errno
import shutil

import pytest
from faulty_store import Killed, faulty_store

from transformer_jax.data.cached_stores import open_or_build
from transformer_jax.data.token_store import open_token_store
from transformer_jax.runtime.file_digests import changed_files
from transformer_jax.runtime.object_stores import MIRRORS, Store, StoreError

CACHE = "faulty://bucket/cache"
NAME = "token_stores/train-0"
REFUSED = PermissionError(errno.EACCES, "Access Denied")


@pytest.fixture
def remote(monkeypatch, tmp_path):
    with faulty_store(monkeypatch, tmp_path / "mirrors") as found:
        yield found


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    return lambda: monkeypatch.setenv(MIRRORS, str(tmp_path / "other"))


def opened(written: list, content: bytes = b"12345", cache: str = CACHE) -> bytes:
    def open_store(folder):
        if changed := changed_files(folder):
            raise ValueError(changed)
        return (folder / "ids").read_bytes()

    def write(folder):
        written.append(folder)
        (folder / "ids").write_bytes(content)

    return open_or_build(cache, NAME, open_store, write)


def test_another_machine_downloads_what_one_has_tokenized(
    remote, elsewhere, listed_corpus, letter_tokenizers, data_config
):
    corpus, config = listed_corpus([("abc", "ba"), ("d", "h")]), data_config(cache_directory=CACHE)
    first = open_token_store(corpus, "train", letter_tokenizers, config, is_training=False)
    uploads = [operation for operation in remote.operations if operation.startswith("write")]
    assert uploads[-1].endswith("/digests.json")
    elsewhere()
    second = open_token_store(corpus, "train", letter_tokenizers, config, is_training=False)
    assert corpus.times_read == 1
    assert [second.source(index).tolist() for index in range(2)] == [first.source(index).tolist() for index in range(2)]
    before = len(remote.operations)
    open_token_store(corpus, "train", letter_tokenizers, config, is_training=False)
    assert len(remote.operations) == before, "what is here is not asked for"


def test_what_was_not_uploaded_whole_is_not_believed(remote, elsewhere):
    written = []
    # The digests are read, and written after the only file.
    remote.faults[3] = Killed()
    with pytest.raises(Killed):
        opened(written, b"half")
    elsewhere()
    assert opened(written, b"whole") == b"whole"
    assert len(written) == 2
    assert Store(f"{CACHE}/{NAME}").read("ids") == b"whole"


def test_what_was_damaged_in_the_store_is_built_and_uploaded_again(remote, elsewhere, capsys):
    written = []
    opened(written)
    Store(f"{CACHE}/{NAME}").write("ids", b"1234x")
    elsewhere()
    assert opened(written) == b"12345"
    assert len(written) == 2
    assert f"{CACHE}/{NAME}: ids changed since" in capsys.readouterr().err
    assert Store(f"{CACHE}/{NAME}").read("ids") == b"12345"


def test_what_is_damaged_here_is_downloaded_again(remote, tmp_path):
    written = []
    opened(written)
    (here,) = (tmp_path / "mirrors").rglob("ids")
    here.write_bytes(b"1234x")
    assert opened(written) == b"12345"
    assert len(written) == 1
    assert here.read_bytes() == b"12345"


def test_two_that_build_at_once_upload_once(remote, monkeypatch, tmp_path):
    written = []
    opened(written)
    before = len(remote.operations)
    shutil.rmtree(tmp_path / "mirrors")
    listing = Store.listing
    # Not there yet when this one looked.
    monkeypatch.setattr(Store, "listing", lambda self: {})
    assert opened(written) == b"12345"
    monkeypatch.setattr(Store, "listing", listing)
    assert [operation.partition(" ")[0] for operation in remote.operations[before:]] == ["read"]


def test_a_store_that_does_not_answer_at_the_start_is_named(remote, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise REFUSED

    monkeypatch.setattr(remote, "find", refuse)
    written = []
    with pytest.raises(StoreError, match=f"{CACHE}/{NAME}: Access Denied"):
        opened(written)
    assert not written


def test_what_cannot_be_uploaded_is_used_here_and_uploaded_by_the_next_start(remote, capsys):
    written = []
    # The digests are read before the only file is uploaded.
    remote.faults[2] = REFUSED
    assert opened(written) == b"12345"
    assert f"{CACHE}/{NAME}/ids: Access Denied; the tokenized data are in" in capsys.readouterr().err
    assert not Store(f"{CACHE}/{NAME}").read("digests.json")
    assert opened(written) == b"12345"
    assert len(written) == 1
    assert Store(f"{CACHE}/{NAME}").read("ids") == b"12345"
    before = len(remote.operations)
    opened(written)
    assert len(remote.operations) == before


def test_what_others_laid_beside_it_is_left_there(remote, elsewhere):
    written = []
    opened(written)
    Store(f"{CACHE}/{NAME}").write("notes.txt", b"mine")
    elsewhere()
    assert opened(written) == b"12345"
    assert len(written) == 1


def test_damage_that_may_not_be_removed_there_costs_the_others_time_and_no_run(remote, elsewhere):
    written = []
    opened(written)
    Store(f"{CACHE}/{NAME}").write("ids", b"1234x")
    elsewhere()
    # Digests and file are downloaded; then the digests are to be removed.
    remote.faults[len(remote.operations) + 3] = REFUSED
    assert opened(written) == b"12345"
    assert len(written) == 2
