"""Tokenized splits that independent jobs write, in shards, into a folder or an object store, and training opens.

    STORE/settings.json               the settings and the text, by digests that copies of the text share
    STORE/tokenizers/                 as in a run
    STORE/shards/3-of-64/             a store of its own, with the digests of its files
    STORE/shards/3-of-64.json         written when the shard is complete: sizes of its files, and counts
    STORE/manifest.json               written when all shards are complete: their descriptions, and a digest of the content

Every file is written whole, and descriptions last, with a digest of the settings; each may be written twice with the same
content. So jobs need no lock, and one that was killed can be repeated.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from transformer_jax.config import ConfigError, DataError
from transformer_jax.config.checks import is_address
from transformer_jax.config.errors import StoreError
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.cached_stores import PARTIAL, Shard, SplitType, Tokenization, open_or_build
from transformer_jax.data.ranged_ids import Ids, RangedIds, write_block_crcs
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.data.tokenizers import TOKENIZER_FILES, TokenizerPair, load_tokenizers, save_tokenizers
from transformer_jax.runtime.file_digests import DIGESTS
from transformer_jax.runtime.object_store import SharedFolder, scratch_folder

FORMAT = 2
MANIFEST, SETTINGS, TOKENIZERS, SHARDS = "manifest.json", "settings.json", "tokenizers", "shards"
_DESCRIPTION = re.compile(r"(\d+-of-(\d+))\.json")


def upload_shard(work: Tokenization[SplitType], address: str, cache: str, shard: Shard) -> list[int]:
    """Tokenizes a shard into the store at ``address``, unless it is there; the job that completes the last writes the manifest.

    Returns the shards that are missing. Raises ConfigError where the store has other settings or another text, and DataError
    where it has another number of shards, cannot be written, or is complete without a pair or document.
    """
    store = SharedFolder(address, "--output")
    settings = {"layout": FORMAT, **work.settings, "text": work.text()}
    if _read(store, SETTINGS) is None:
        store.write(SETTINGS, _as_json(settings))
    # Another job may have written its own meanwhile.
    _require_equal(_read(store, SETTINGS) or settings, settings, f"--output: {address} was tokenized")
    name = _name(shard.index, shard.count)
    key = _key(settings)
    described = _read(store, f"{SHARDS}/{name}.json") if name in _finished(store, shard.count) else None
    if described is None or described.get("settings") != key:
        # A job that is repeated because the upload failed finds the shard in the cache.
        local = f"{work.kind}/shard-{key}-{name}"

        def write(folder: Path) -> None:
            work.write(folder, shard)
            write_block_crcs(folder)

        opened = open_or_build(cache, local, work.store_type, write)
        folder = Path(cache).expanduser() / local
        store.put(sorted(folder.iterdir()), f"{SHARDS}/{name}")
        sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
        digests = digest([(folder / DIGESTS).read_text()])
        described = {"counts": opened.counts(), "files": sizes, "digests": digests, "settings": key}
        store.write(f"{SHARDS}/{name}.json", _as_json(described))
        shutil.rmtree(folder, ignore_errors=True)
    missing = _missing(store, shard.count)
    if not missing:
        store.write(MANIFEST, _as_json(_manifest(store, settings, shard.count)))
    return missing


def open_shared(work: Tokenization[SplitType], address: str, cache: str) -> SplitType:
    """The store at ``address``: of one in a folder a copy in the cache, of one in an object store everything but token ids.

    Those are read by ranges. The text is compared where it can be read; a corpus of tensorflow-datasets, which may be
    downloaded, is not. Raises ConfigError where the store was tokenized with other settings, and DataError where it is
    unfinished, with the missing shards.
    """
    store = SharedFolder(address, "data.store")
    manifest = finished_manifest(address)
    found, shards = manifest["settings"], manifest["shards"]
    wanted = {"layout": FORMAT, **work.settings, "text": _text_here(work) or found.get("text")}
    _require_equal(found, wanted, f"data.store: {address} was tokenized")
    by_ranges = is_address(address)
    # The order of blocks and their CRC-32 depend on the shards, the joined content does not.
    content = _key({"digest": manifest["digest"], "shards": shards}) if by_ranges else manifest["digest"][:32]
    name = f"{work.kind}/{'index' if by_ranges else 'shared'}-{content}"
    opened = [""]

    def damaged(shard: str) -> DataError:
        again = f"run transformer-jax tokenize --output={address} --shard={shard.replace('-of-', '/')} again"
        remedy = f"remove {SHARDS}/{shard}.json and {MANIFEST}, and {again}, with the same settings"
        return DataError(f"{address}: shard {shard} is damaged; {remedy}")

    def ranges(names: Sequence[str], begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        try:
            return store.ranges(names, begins, ends)
        except StoreError as error:
            wanted = {name.split("/")[1] for name in names} if _is_missing(error) else set[str]()
            for shard in wanted:
                if not shards[shard]["files"].keys() <= set(store.names(f"{SHARDS}/{shard}")):
                    raise damaged(shard) from error
            raise

    def ranged_ids(path: Path, dtype: str, length: int) -> Ids:
        files = [
            (f"{SHARDS}/{shard}/{path.name}", described["files"][path.name]) for shard, described in shards.items()
        ]
        crcs = np.fromfile(path.with_suffix(".crcs"), "<u4")
        # Not in the cache, which hosts may share: their NFS clients would overwrite each other's blocks.
        blocks = scratch_folder() / "blocks" / name / path.name
        return RangedIds(blocks, dtype, length, files, crcs, ranges, lambda file: damaged(file.split("/")[1]))

    def downloaded(folder: Path, joined: Path) -> Iterator[SplitType]:
        for shard, described in shards.items():
            opened[0], part = shard, folder / shard
            store.get(
                f"{SHARDS}/{shard}", [file for file in described["files"] if not (by_ranges and _is_ids(file))], part
            )
            digests = (part / DIGESTS).read_text()
            if digest([digests]) != described["digests"]:
                raise ValueError("not the shard in the manifest")
            if by_ranges:
                checked = {file: crcs for file, crcs in parse_json(digests).items() if not _is_ids(file)}
                (part / DIGESTS).write_text(json.dumps(checked))
            yield work.store_type(part, **({"open_ids": _no_ids} if by_ranges else {}))
            for file in part.glob("*.crcs") if by_ranges else ():
                with (joined / file.name).open("ab") as crcs_of_all:
                    crcs_of_all.write(file.read_bytes())
            # Its files are mapped: NFS keeps them until they are closed.
            shutil.rmtree(part, ignore_errors=True)

    def write(folder: Path) -> None:
        with TemporaryDirectory(suffix=PARTIAL, dir=folder.parent, ignore_cleanup_errors=True) as parts:
            try:
                work.join(downloaded(Path(parts), folder), folder)
            except ValueError as error:
                if isinstance(error, StoreError) and not _is_missing(error):
                    raise
                raise damaged(opened[0]) from error

    return open_or_build(
        cache, name, partial(work.store_type, open_ids=ranged_ids) if by_ranges else work.store_type, write
    )


def _is_missing(error: StoreError) -> bool:
    """Whether the store answered that it does not have a file."""
    return isinstance(error.__cause__, FileNotFoundError)


def _is_ids(file: str) -> bool:
    return file.endswith(".ids")


def _no_ids(path: Path, dtype: str, length: int) -> np.ndarray:
    return np.zeros(0, dtype)


def _text_here(work: Tokenization[SplitType]) -> str:
    if work.settings["data.source"] == "tfds":
        return ""
    try:
        return work.text()
    except (DataError, OSError):
        return ""


def finished_manifest(address: str) -> dict[str, Any]:
    """The manifest of a store; raises DataError, with the missing shards and the command for them, where there is none."""
    store = SharedFolder(address, "data.store")
    manifest = _read(store, MANIFEST)
    if manifest is not None and manifest.keys() >= {"digest", "settings", "shards"}:
        return manifest
    counts = sorted({found[2] for found in _descriptions(store)})
    if not counts:
        problem = "is not a store: it has no manifest.json of tokenize, and no shard"
        raise DataError(f"data.store: {address} {problem}; write one with transformer-jax tokenize --output={address}")
    count = int(counts[0])
    missing = _missing(store, count)
    listed = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    problem = f"{len(missing)} of {count} shards are missing ({listed})" if missing else "all shards are there"
    again = f"--shard={(missing or [0])[0]}/{count}"
    remedy = f"run transformer-jax tokenize --output={address} {again}, with the same settings, once for each"
    raise DataError(f"data.store: {address} is unfinished: it has no manifest.json, and {problem}; {remedy}")


def shared_tokenizers(
    address: str, settings: Mapping[str, object], key: str, make: Callable[[], TokenizerPair] | None = None
) -> TokenizerPair:
    """The tokenizers of the store at ``address``; if it has none, ``make`` makes them.

    Raises ConfigError, which begins with ``key``, where they were made with other ``settings``; further ones are not compared.
    """
    store = SharedFolder(address, key)
    made_with = _read(store, f"{TOKENIZERS}/{SETTINGS}")
    with TemporaryDirectory() as folder:
        if made_with is None:
            if make is None:
                finished_manifest(address)
                raise DataError(f"{key}: {address} has no tokenizers; write the store again")
            save_tokenizers(make(), folder)
            store.put(sorted(Path(folder).iterdir()), TOKENIZERS)
            store.write(f"{TOKENIZERS}/{SETTINGS}", _as_json(settings))
        compared = settings if made_with is None else {name: made_with.get(name) for name in settings}
        _require_equal(compared, settings, f"{key}: {address} has tokenizers")
        there = Path(folder) / "there"
        store.get(TOKENIZERS, [name for name in store.names(TOKENIZERS) if name in TOKENIZER_FILES], there)
        return load_tokenizers(there)


def _require_equal(found: Mapping[str, object], settings: Mapping[str, object], problem: str) -> None:
    wanted = json.loads(_as_json(settings))
    differing = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    if differing:
        name = differing[0]
        before, now = ("none" if each in (None, "") else each for each in (found.get(name), wanted.get(name)))
        remedy = "use the same settings and text, or another store"
        raise ConfigError(f"{problem} with {name}={before}, not {now}; {remedy}")


def _name(index: int, count: int) -> str:
    return f"{index}-of-{count}"


def _key(settings: Mapping[str, object]) -> str:
    return digest([json.dumps(settings, sort_keys=True)])[:32]


def _descriptions(store: SharedFolder) -> list[re.Match[str]]:
    return [found for name in store.names(SHARDS) if (found := _DESCRIPTION.fullmatch(name))]


def _finished(store: SharedFolder, count: int) -> set[str]:
    """The names of finished shards; raises DataError where there are shards of another count."""
    names = {found[1] for found in _descriptions(store)}
    if other := next((name for name in sorted(names) if not name.endswith(f"-of-{count}")), None):
        raise DataError(
            f"--output: {store.address} has shards of another count ({other}); use that count, or another store"
        )
    return names


def _missing(store: SharedFolder, count: int) -> list[int]:
    finished = _finished(store, count)
    return [index for index in range(count) if _name(index, count) not in finished]


def _manifest(store: SharedFolder, settings: Mapping[str, object], count: int) -> dict[str, Any]:
    """Descriptions of all shards, their sums, and a digest of everything that determines the joined content."""
    shards = {}
    for index in range(count):
        name = _name(index, count)
        shards[name] = _read(store, f"{SHARDS}/{name}.json") or {}
        if shards[name].get("settings") != _key(settings):
            problem = f"shard {name} has other settings or another text"
            raise DataError(f"--output: {store.address}: {problem}; run --shard={index}/{count} again")
        there, files = store.sizes(f"{SHARDS}/{name}"), shards[name]["files"]
        # There may be unfinished copies of killed jobs too.
        if {file: there.get(file) for file in files} != files:
            problem = f"shard {name} is damaged: its files have other sizes than when written"
            remedy = f"remove {SHARDS}/{name}.json and run --shard={index}/{count} again"
            raise DataError(f"--output: {store.address}: {problem}; {remedy}")
    totals = Counter[str]()
    for described in shards.values():
        totals.update(described["counts"])
    if not totals.get("pairs", totals.get("documents")):
        read = "; ".join(f"{value:,} {name}" for name, value in totals.items() if value) or "the text is empty"
        raise DataError(f"--output: {store.address}: nothing of the split {settings['split']!r} is left: {read}")
    content = digest([json.dumps([settings, totals], sort_keys=True)])
    return {"digest": content, "settings": settings, "counts": totals, "shards": shards}


def _read(store: SharedFolder, name: str) -> dict[str, Any] | None:
    try:
        found = parse_json(store.read(name) or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _as_json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
