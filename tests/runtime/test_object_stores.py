"""Objects of a store: transient errors, names, files that arrive whole, one winner; and data read from there."""

import errno
import socket
import ssl
from types import SimpleNamespace

import pytest
from faulty_store import faulty_store

from transformer_jax.config import ConfigError, DataConfig, DataError, InitConfig
from transformer_jax.config.addresses import is_address
from transformer_jax.config.language_model import TextDataConfig
from transformer_jax.config.word_vectors import WordTextConfig
from transformer_jax.data import remote_text
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.documents import open_documents
from transformer_jax.runtime import retries
from transformer_jax.runtime.object_stores import Store, StoredObject, StoreError, is_safe, mirror_folder
from transformer_jax.runtime.retries import retried

BUSY = OSError(errno.EBUSY, "503 Slow Down")
REFUSED = PermissionError(errno.EACCES, "Access Denied")


@pytest.fixture
def store(monkeypatch, tmp_path):
    with faulty_store(monkeypatch, tmp_path / "mirrors") as found:
        yield found


def test_a_busy_store_is_asked_again_and_one_that_refuses_is_not(store):
    store.faults.update({1: BUSY, 2: ConnectionResetError(), 3: TimeoutError()})
    Store("faulty://bucket/run").write("a", b"1")
    assert len(store.operations) == 4
    store.faults[5] = REFUSED
    with pytest.raises(StoreError, match="faulty://bucket/run/a: Access Denied"):
        Store("faulty://bucket/run").write("a", b"2")
    assert len(store.operations) == 5


def test_it_is_asked_ever_more_rarely_and_not_for_ever(store, monkeypatch):
    now, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(retries, "FIRST_PAUSE", 1.0)
    store.faults.update(dict.fromkeys(range(1, 10_000), BUSY))
    with pytest.raises(StoreError, match="503 Slow Down"):
        Store("faulty://bucket/run", patience=100.0).read("a")
    assert sum(pauses) == pytest.approx(100.0)
    assert all(2**n / 2 <= pause <= 2**n for n, pause in enumerate(pauses[:5]))
    assert max(pauses) <= retries.LONGEST_PAUSE


def test_a_mistake_in_the_code_is_not_tried_again():
    attempts = []
    with pytest.raises(TypeError):
        retried(lambda: attempts.append(1) or len(3), "x", 60.0)
    assert attempts == [1]


def test_a_file_arrives_whole_or_not_at_all(store, tmp_path):
    found = Store("faulty://bucket/run")
    found.write("a/b", b"12345")
    store.cut.append("/bucket/run/a/b")
    found.download("a/b", tmp_path / "a" / "b", 5)
    assert (tmp_path / "a" / "b").read_bytes() == b"12345"
    found.patience = 0.0
    store.cut.append("/bucket/run/a/b")
    with pytest.raises(StoreError, match="of 5 bytes arrived"):
        found.download("a/b", tmp_path / "c", 5)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["b"]
    # It was shorter when it was listed.
    found.download("a/b", tmp_path / "d", 3)
    assert (tmp_path / "d").read_bytes() == b"12345"


def test_one_of_two_creates_an_object_also_when_an_answer_was_lost(store):
    found = Store("faulty://bucket/run")
    assert found.create("lease", b"1")
    store.faults[2] = BUSY
    assert not found.create("lease", b"2")
    assert found.read("lease") == b"1"


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/passwd", "a//b", "a\\..\\b", "C:x", "a\nb", "x" * 256, "", ".", "a/.", "caf\udce9"],
)
def test_no_name_leads_out_of_the_copy(store, name, monkeypatch, tmp_path):
    assert not is_safe(name)
    found = Store("faulty://bucket/run")
    with pytest.raises(DataError):
        found.read(name)
    if name:
        monkeypatch.setattr(store, "find", lambda self, root, detail: {f"{root}/{name}": {"size": 1}})
        if not name.startswith("/"):
            with pytest.raises(DataError, match="not a valid file name"):
                found.listing()


def test_mirrors_of_different_addresses_are_different_folders_below_one(store, tmp_path):
    addresses = ["s3://b/a", "s3://b/a/b", "s3://b/a-b", "gs://b/a", "s3://b/../../a"]
    folders = {mirror_folder(address, "read") for address in addresses}
    assert len(folders) == len(addresses)
    assert {folder.parents[1] for folder in folders} == {tmp_path / "mirrors"}


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("nosuch://bucket/a", "Protocol not known"),
        ("file:///etc", "not the address of an object store"),
        ("s3:/bucket/a", "not the address"),
        ("simplecache::s3://b/a", "not the address"),
        ("s3://key:secret@bucket/a", "leave it out"),
        ("s3:/key:secret@bucket/a", "leave it out"),
        ("file://user:secret@host/a", "leave it out"),
        ("simplecache::s3://key:secret@bucket/a", "leave it out"),
        ("s3://key:se[cret@bucket/a", "leave it out"),
        ("S3://bucket/a", "not the address"),
        ("github://bucket/a", "github://bucket/a: "),
        ("s3://bucket/a?sig=secret", "leave it out"),
        ("gs:///bucket/a", "not the address"),
    ],
)
def test_what_is_no_store_is_said(address, problem):
    with pytest.raises(ConfigError, match=problem) as found:
        Store(address)
    assert "cret" not in str(found.value)


def test_paths_are_no_addresses():
    assert is_address("s3://bucket/run")
    assert is_address("s3:/bucket/run"), "as pathlib writes it"
    for address in ("hdfs:///run", "file:///run", "S3://bucket/run", "gs:///bucket", "simplecache::s3://bucket/run"):
        assert is_address(address), "it must not become a folder"
    assert not any(map(is_address, ("runs/a", "/runs/a", "~/a", "C:\\runs", "runs/a:best", "a:1", "")))


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (DataConfig(source="text", train="a.{en,de},s3://b/c.{en,de}"), "data.train"),
        (WordTextConfig(source="text", train="a", test_sets="s3://b/sets"), "data.test_sets"),
        (InitConfig(embeddings="s3://b/glove.txt"), "init.embeddings"),
        (DataConfig(source="tfds", name="wmt14_translate", directory="s3://b/tfds"), "data.directory"),
    ],
)
def test_where_only_a_file_will_do_an_address_is_refused(data, key):
    with pytest.raises(ConfigError, match=f"{key}: s3://b/.* lies in an object store"):
        data.absolute()


def test_without_a_version_an_object_may_have_changed_and_without_a_size_it_arrives_all_the_same(store, monkeypatch):
    found = Store("faulty://bucket/text")
    found.write("train.en", b"a\n")
    with monkeypatch.context() as patched:
        for name in ("info", "find"):
            patched.setattr(store, name, without_description(getattr(store, name)))
        assert found.find("train.en") == StoredObject(0, "")
        for content in (b"b\n", b"c\n"):
            found.write("train.en", content)
            remote_text._copied.cache_clear()
            assert remote_text.local_file("faulty://bucket/text/train.en", "data.train").read_bytes() == content


def without_description(method):
    """Tells neither size nor time of an object."""

    def bare(self, *args, **kwargs):
        found = method(self, *args, **kwargs)
        described = {"size": None, "type": "file"}
        return dict.fromkeys(found, described) if method.__name__ == "find" else found | described | {"created": None}

    return bare


def test_a_full_disk_here_is_not_the_fault_of_the_store(store, monkeypatch, tmp_path):
    Store("faulty://bucket/text").write("a", b"1")
    store.faults[2] = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DataError, match=f"^{tmp_path}/a: No space left on device") as found:
        Store("faulty://bucket/text").download("a", tmp_path / "a", 1)
    assert not isinstance(found.value, StoreError)


@pytest.mark.parametrize(
    ("error", "is_tried_again"),
    [
        (OSError("Forbidden: bucket/a"), False),
        (OSError(errno.EIO, "5 of 9 bytes arrived"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (ssl.SSLError(1, "record layer failure"), True),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), False),
        (TypeError("of us"), False),
    ],
)
def test_what_is_worth_another_attempt(error, is_tried_again):
    assert retries.is_transient(error) == is_tried_again


def test_only_the_files_of_a_folder_are_asked_for(store):
    for name in ("a/b", "a/c/d"):
        Store("faulty://bucket").write(name, b"1")
    assert list(Store("faulty://bucket/a").listing(is_deep=False)) == ["b"]


def test_a_damaged_copy_of_text_is_downloaded_again(store, tmp_path):
    Store("faulty://bucket/text").write("train.en", b"a\nb\n")
    copy = remote_text.local_file("faulty://bucket/text/train.en", "data.train")
    copy.write_text("a")
    remote_text._copied.cache_clear()
    assert remote_text.local_file("faulty://bucket/text/train.en", "data.train").read_bytes() == b"a\nb\n"


def test_text_in_a_store_is_read_and_downloaded_again_once_changed(store):
    found = Store("faulty://bucket/text")
    for name, content in {"train.en": b"a\nb\n", "train.de": b"c\nd\n", "more/x": b"x"}.items():
        found.write(name, content)
    corpus = open_corpus(DataConfig(source="text", directory="faulty://bucket/text").absolute(), 0)
    assert [tuple(pair) for pair in corpus.pairs("train")] == [("a", "c"), ("b", "d")]
    found.write("train.en", b"e\nf\n")
    remote_text._copied.cache_clear()
    reads = len(store.operations)
    assert [pair.source for pair in corpus.pairs("train")] == ["e", "f"]
    assert store.operations[reads:] == ["read /bucket/text/train.en"]
    remote_text._copied.cache_clear()
    one = TextDataConfig(source="text", train="faulty://bucket/text/train.en", held_out=0.5).absolute()
    assert [each.text for each in open_documents(one, 0).documents("train")] == ["e"]


def test_an_address_that_only_the_run_names_is_not_opened(store):
    saved = DataConfig(source="text", directory="faulty://bucket/text").only_reading()
    with pytest.raises(DataError, match=r"--config.data.directory=faulty://bucket/text"):
        list(open_corpus(saved, 0).pairs("train"))
    with pytest.raises(ConfigError, match="leave it out") as found:
        list(
            open_documents(TextDataConfig(source="text", train="faulty://b/train.txt?token=SECRET"), 0).documents(
                "train"
            )
        )
    assert "SECRET" not in str(found.value)
    hidden = DataConfig(source="text", directory="faulty://key:SECRET@bucket/text").only_reading()
    with pytest.raises(DataError, match=r"--config.data.directory=faulty://key:\*\*\*@bucket/text"):
        list(open_corpus(hidden, 0).pairs("train"))
    assert not store.operations
    assert DataConfig(source="text", directory="/data").only_reading().directory == "/data"
