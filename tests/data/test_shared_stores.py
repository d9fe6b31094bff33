"""Stores that jobs with copies of a text write in shards, into a folder or a bucket."""

import itertools
import json
import os
import re
import shutil
from concurrent.futures import Future
from pathlib import Path

import jax
import numpy as np
import pytest
from memory_store import use_memory

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, DataError, resolve
from transformer_jax.data import stores, text_files, token_store, tokenization
from transformer_jax.data.stores import finished_manifest
from transformer_jax.errors import StoreError
from transformer_jax.files import store_path
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.paths import as_path
from transformer_jax.tasks.new_tokenizers import cached_tokenizers
from transformer_jax.tasks.task import task_class
from transformer_jax.training.sharding import make_mesh

SHARDS = 3


@pytest.fixture
def read_by_blocks(monkeypatch):
    """TensorStore reads small blocks of stores in folders, as it reads stores in buckets."""
    monkeypatch.setattr(token_store, "BLOCK_BYTES", 16)
    monkeypatch.setattr(stores, "CHECKED_AT_ONCE", 0)
    monkeypatch.setattr(token_store, "is_address", lambda folder: "/store" in folder)
    monkeypatch.setattr(store_path, "kvstore", lambda folder: {"driver": "file", "path": f"{folder}/"})


@pytest.fixture(params=["mapped", "read by blocks", pytest.param("s3", marks=pytest.mark.slow)])
def address(request, tmp_path):
    if request.param == "s3":
        request.getfixturevalue("bucket")
        return "s3://bucket/tokens"
    if request.param == "read by blocks":
        request.getfixturevalue("read_by_blocks")
    return str(tmp_path / "store")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """``machine(number)``: the flags on a machine with another cache and copy of the text."""
    monkeypatch.setattr(text_files, "WHOLE_HASH_BYTES", 0)
    monkeypatch.setattr(text_files, "_SAMPLE_BYTES", 8)

    def flags(number, pairs=40, **settings):
        folder = tmp_path / f"machine{number}"
        folder.mkdir(exist_ok=True)
        for language in ("en", "de"):
            text = folder / f"train.{language}"
            text.write_text("".join(f"{language} {'a b c'[: 1 + line % 5]} {line % 7}\n" for line in range(pairs)))
            os.utime(text, (number, number))
        blocks = {"data.source": "text", "data.train": f"{folder}/train.{{en,de}}", "tokenizer.kind": "word"}
        blocks |= {"data.cache_directory": f"{folder}/cache", **settings}
        return [("model.compute_dtype", "float32"), ("data.seed", "0"), *blocks.items()]

    return flags


def tokenize(flags, address, index, count=SHARDS, recipe="quickstart"):
    overrides = [f"--config.{name}={value}" for name, value in flags]
    return main(["tokenize", f"--config={recipe}", *overrides, f"--output={address}", f"--shard={index}/{count}"])


def training_data(flags, address, recipe="quickstart"):
    config = resolve(recipe, [*flags, ("data.store", address)])
    task = task_class(config.task)
    return task(config, cached_tokenizers(config, task), make_mesh(config.mesh)).training_data()


def opened(flags, address):
    return training_data(flags, address).store


def test_machines_with_copies_of_the_text_fill_one_store_and_training_needs_none(
    address, machine, monkeypatch, capsys, tmp_path
):
    for number, index in enumerate((0, 2)):
        assert tokenize(machine(number), address, index) == 0
    assert "missing: 1/3" in capsys.readouterr().out
    with pytest.raises(DataError, match=r"1 of 3 shards are missing \(1\); run .* --output=.* --shard=1/3"):
        finished_manifest(address)
    with monkeypatch.context() as killed:
        # Its files are in the store, and their description is not.
        upload = stores._upload

        def cut_short(part, target):
            (part / "part.json").unlink()
            upload(part, target)

        killed.setattr(stores, "_upload", cut_short)
        assert tokenize(machine(2), address, 1)
    # What a job leaves that is killed while it copies a file to a folder.
    write_whole(as_path(address) / f"shards/1-of-3/source.ids/0.{'0' * 32}.partial", b"0")
    for _ in range(2):
        assert tokenize(machine(3), address, 1) == 0
        manifest = finished_manifest(address)
    assert manifest["counts"]["pairs read"] == 40 and list(manifest["parts"]) == ["0-of-3", "1-of-3", "2-of-3"]
    flags = machine(4)
    for name in ("train.en", "train.de"):
        (tmp_path / "machine4" / name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(tokenization, "encoded_chunks", None)
        first = opened(flags, address)
        assert opened(flags, address).statistics == first.statistics
    whole = opened(machine(5), "")
    assert first.statistics == whole.statistics
    for name in ("source", "target"):
        ours, theirs = (getattr(store, f"{name}_side") for store in (first, whole))
        assert ours.ids[:].tolist() == theirs.ids[:].tolist() and ours.offsets[:].tolist() == theirs.offsets[:].tolist()


def test_training_from_a_bucket_reads_blocks_and_checks_them(read_by_blocks, machine, tmp_path):
    address = str(tmp_path / "store")
    for index in (0, 1):
        assert tokenize(machine(0), address, index, 2) == 0
    data, whole = (training_data(machine(number), where) for number, where in ((1, address), (2, "")))
    ours, theirs = (itertools.islice(item.batches(0), 3) for item in (data, whole))
    for batch, expected in zip(ours, theirs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, batch, expected)
    assert data.store.is_remote and not list((tmp_path / "machine1").rglob("token_stores/*"))
    file = tmp_path / "store/shards/1-of-2/source.ids/0"
    content = file.read_bytes()
    for damage in (lambda: file.write_bytes(b"x" + content[1:]), lambda: file.write_bytes(content[:5]), file.unlink):
        damage()
        # TensorStore has a cache of the blocks that it read.
        token_store._context.cache_clear()
        store = training_data(machine(3), address).store
        assert store.target_side.ids[:].tolist() == data.store.target_side.ids[:].tolist()
        with pytest.raises(DataError, match=r"shard 1-of-2 is damaged; remove .*, and run .* --shard=1/2 again"):
            store.source_side.ids[:]


def test_a_bucket_that_refuses_is_not_taken_for_a_damaged_or_an_empty_one(
    read_by_blocks, machine, tmp_path, monkeypatch
):
    address = str(tmp_path / "store")
    assert tokenize(machine(0), address, 0, 1) == 0
    store = training_data(machine(1), address).store
    answer = Future()
    answer.set_exception(ValueError("PERMISSION_DENIED: Access Denied"))
    with monkeypatch.context() as refusal:
        refusal.setattr(token_store, "_request", lambda numbers: answer)
        with pytest.raises(DataError, match=rf"^data\.store: {address}: PERMISSION_DENIED: Access Denied"):
            store.source_side.ids[:]
        refusal.setattr(token_store, "_request", lambda numbers: Future())
        refusal.setattr(token_store, "SECONDS_TO_ANSWER", 0)
        with pytest.raises(StoreError, match=f"{address}: the bucket did not answer for 0 seconds") as caught:
            store.source_side.ids[:]
        assert caught.value.is_outage
    files = use_memory(monkeypatch)
    monkeypatch.setattr(type(files), "cat_file", lambda *arguments, **options: Path("/").read_bytes())
    with pytest.raises(StoreError, match="s3://bucket/tokens/manifest.json: .*Is a directory"):
        finished_manifest("s3://bucket/tokens")


def test_only_addresses_that_tensorstore_reads_are_stores():
    for address in ("memory://bucket/tokens", "https://host/tokens", "s3:///tokens", "gs://"):
        with pytest.raises(ConfigError, match="not the address of a bucket; write s3://BUCKET/FOLDER"):
            finished_manifest(address)


def test_what_does_not_belong_to_a_store_is_refused(machine, tmp_path, capsys):
    address = str(tmp_path / "store")
    assert tokenize(machine(0), address, 0) == 0
    none = machine(0, **{"data.max_source_tokens": "1"})
    for flags, store, shard, message in (
        (machine(1, pairs=41), address, (1, SHARDS), "was tokenized with text="),
        (machine(2, **{"data.max_source_tokens": "9"}), address, (1, SHARDS), "was tokenized with filters="),
        (machine(3, **{"tokenizer.kind": "byte"}), address, (1, SHARDS), "has tokenizers with kind=word, not byte"),
        (machine(4), address, (1, 5), f"--output: {address} has shards of another count (0-of-3)"),
        (none, f"{address}-none", (0, 1), "nothing of the split 'train' is left: 40 pairs read; "),
    ):
        assert tokenize(flags, store, *shard) == 2, message
        assert message in capsys.readouterr().err
    assert not (tmp_path / "store-none/manifest.json").exists()
    shutil.copytree(f"{address}/shards/0-of-{SHARDS}", f"{address}/shards/1-of-5")
    with pytest.raises(DataError, match=r"^data\.store: \S* has shards of several counts \(0-of-3, 1-of-5\) and no"):
        finished_manifest(address)
    shutil.rmtree(f"{address}/shards/1-of-5")
    for index in (1, 2):
        assert tokenize(machine(5), address, index) == 0
    with pytest.raises(ConfigError, match=r"data\.store: .* with filters="):
        opened(machine(6, **{"data.max_source_tokens": "9"}), address)


def without_text(flags):
    folder = Path(dict(flags)["data.train"]).parent
    for name in ("train.en", "train.de"):
        (folder / name).unlink(missing_ok=True)
    return flags


def test_a_store_of_other_pairs_is_refused(machine, tmp_path):
    address = str(tmp_path / "store")
    held = {"data.held_out": "0.1"}
    assert tokenize(machine(0), address, 0, 1) == 0
    assert tokenize(machine(0, **held), f"{address}-held", 0, 1) == 0
    for flags, store, message in [
        (machine(1, **held), address, r"data\.held_out=0\.0, not 0\.1"),
        (without_text(machine(2, **held)), address, r"data\.held_out=0\.0, not 0\.1"),
        (machine(3), f"{address}-held", r"data\.held_out=0\.1, not 0\.0"),
        (without_text(machine(4, **held, **{"data.seed": "1"})), f"{address}-held", r"data\.seed=0, not 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            opened(flags, store)
    assert opened(machine(6, **{"data.seed": "1"}), address).num_pairs, "the seed chose nothing in it"


def test_a_fault_of_a_shard_is_named_with_its_remedy(machine, tmp_path, monkeypatch):
    address = str(tmp_path / "store")
    for index in (0, 1):
        assert tokenize(machine(0), address, index, 2) == 0
    (tmp_path / "store/shards/.nfs0001.json").write_text("{}")
    ids = tmp_path / "store/shards/1-of-2/source.ids/0"
    content = bytearray(ids.read_bytes())
    content[0] ^= 1
    ids.write_bytes(content)
    remedy = r"remove shards/1-of-2/part\.json and manifest\.json, and run .* --shard=1/2 again"
    for is_large in (False, True):
        if is_large:
            monkeypatch.setattr(stores, "CHECKED_AT_ONCE", 0)
        with pytest.raises(DataError, match=f"shard 1-of-2 is damaged; {remedy}"):
            opened(machine(1), address).source_side.ids[:]
    (tmp_path / "store/shards/1-of-2/part.json").unlink()
    (tmp_path / "store/manifest.json").unlink()
    assert tokenize(machine(0), address, 1, 2) == 0
    assert opened(machine(2), address).num_pairs
    ids.unlink()
    with pytest.raises(DataError, match=f"shard 1-of-2 is damaged; {remedy}") as raised:
        opened(machine(3), address)
    assert re.search(r"No such file .*source\.ids", str(raised.value.__cause__))


def test_the_last_job_refuses_a_shard_that_was_cut_and_an_earlier_store_is_written_again(machine, tmp_path, capsys):
    address = tmp_path / "store"
    assert tokenize(machine(0), str(address), 0, 2) == 0
    file = address / "shards/0-of-2/source.ids/0"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    assert tokenize(machine(0), str(address), 1, 2) == 2
    assert "shard 0-of-2 is damaged: its files have other sizes than when written; remove" in capsys.readouterr().err
    file.write_bytes(content)
    assert tokenize(machine(0), str(address), 1, 2) == 0
    (address / "manifest.json").write_text('{"digest": "", "settings": {}, "shards": {}}')
    settings = json.loads((address / "settings.json").read_text())
    (address / "settings.json").write_text(json.dumps(settings | {"layout": 2}))
    with pytest.raises(DataError, match=r"store was written by another version; run .* with another folder"):
        finished_manifest(str(address))
    assert tokenize(machine(0), str(address), 1, 2) == 2
    assert "was tokenized with layout=2, not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recipe", "flags", "other"),
    [
        ("language_model:quick", {"data.source": "text", "data.held_out": "0.1"}, {"data.held_out": "0.2"}),
        ("language_model:quick", {"data.source": "text"}, {"data.documents": "paragraphs"}),
        ("parsing", {"data.generated_pairs": "50"}, {"data.word_positions": "True"}),
    ],
)
def test_a_store_of_other_settings_of_a_task_is_refused(recipe, flags, other, tmp_path):
    flags = flags | {"data.cache_directory": str(tmp_path / "cache"), "model.compute_dtype": "float32"}
    if recipe != "parsing":
        (tmp_path / "a.txt").write_text("a b c\n\nd e\n" * 20)
        flags |= {"data.train": str(tmp_path / "a.txt"), "tokenizer.kind": "byte"}
    store = str(tmp_path / "store")
    assert tokenize(flags.items(), store, 0, 1, recipe) == 0
    with pytest.raises(ConfigError, match=f"with {next(iter(other))}="):
        training_data([*flags.items(), *other.items()], store, recipe)


def test_only_tokenizers_are_read_from_their_folder_and_only_a_manifest_of_a_store(machine, tmp_path):
    address = tmp_path / "store"
    assert tokenize(machine(0), str(address), 0, 1) == 0
    # Another job writes it; it may vanish between a listing and the download.
    (address / f"tokenizers/tokenizer.json.{'0' * 32}.partial").symlink_to("gone")
    assert tokenize(machine(1), str(address), 0, 1) == 0
    (tmp_path / "app").mkdir()
    (tmp_path / "app/manifest.json").write_text('{"name": "app"}')
    with pytest.raises(DataError, match="is not a store: it has no manifest.json of tokenize, and no shard"):
        finished_manifest(str(tmp_path / "app"))


def test_an_address_in_the_settings_of_a_run_is_not_opened():
    with pytest.raises(ConfigError, match=r"data\.store: s3://a/b comes from the settings of a run"):
        finished_manifest("unasked+s3://a/b")
