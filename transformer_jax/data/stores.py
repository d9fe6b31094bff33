"""The address of tokenized splits: the cache of a machine, or a store that jobs fill with shards.

    STORE/settings.json        the settings and the text, by digests that copies of the text share
    STORE/tokenizers/          as in a run
    STORE/shards/              the parts, see token_store
    STORE/manifest.json        written when all parts are complete

Every file is written whole, and descriptions last, with a digest of the settings. A file may be
written twice with the same content, so jobs need no lock, and one that was killed can be repeated.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.config import ConfigError, DataConfig, DataError
from transformer_jax.config.data import SourceConfig
from transformer_jax.data.sentence_pairs import Corpus, DocumentSource, digest
from transformer_jax.data.token_store import (
    MANIFEST,
    PART,
    SHARDS,
    DocumentStore,
    StoreParts,
    TokenStore,
    completed_array,
    sealed,
    unsealed,
)
from transformer_jax.data.tokenization import (
    WHOLE_SPLIT,
    DocumentTokenization,
    PairTokenization,
    Shard,
    StoreType,
    Tokenization,
)
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair, load_tokenizers, save_tokenizers
from transformer_jax.errors import complain, first_line
from transformer_jax.files.atomic_files import appearing_file, appearing_folder, waiting_for_lock, write_whole
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import absolute_path, as_path, in_store, is_address, is_unasked, without_mark

# A smaller store is checked when it is opened, a larger one block by block as batches need them.
CHECKED_AT_ONCE = 1 << 28
# A partial folder of a killed process is removed if nothing was written to it for this long.
ABANDONED_SECONDS = 24 * 3600
LAYOUT = 3
# A run that began with a store of layout 2 resumes with the same text in this layout.
LAYOUT_OF_DIGEST = 2
SETTINGS, TOKENIZERS = "settings.json", "tokenizers"
_DESCRIPTION = re.compile(rf"(\d+)-of-(\d+)/{re.escape(PART)}")

Opened = TypeVar("Opened")


def open_or_build(
    cache: str, name: str, open_folder: Callable[[Path], Opened], write: Callable[[Path], object]
) -> Opened:
    """Open the folder ``name`` in ``data.cache_directory``, or build it: ``write`` fills a folder.

    A folder gets its name when it is complete. An incomplete or damaged one, or one of an earlier
    version, is replaced. Of several processes one builds it and the others wait. If files cannot be
    locked all build, and the first to finish wins. Raises DataError if the disk cannot be written.
    """
    directory = Path(absolute_path(cache, "data.cache_directory")) / name

    def opened(is_told: bool = False) -> Opened | None:
        is_there = directory.exists()
        try:
            return open_folder(directory)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            if is_told and is_there:
                complain(f"{directory}: damaged, or of another version; builds it again ({first_line(error)})")
            return None

    if (existing := opened(is_told=True)) is not None:
        return existing
    with waiting_for_lock(directory.with_name(f"{directory.name}.lock")):
        # The process that held the lock may have built it.
        if (existing := opened()) is not None:
            return existing
        try:
            _remove_abandoned(directory.parent)
            with appearing_folder(directory) as partial:
                write(partial)
                if directory.exists() and opened() is None:
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError as error:
            # Another process may have been first. Its folder stays: its files may be mapped
            # already.
            if opened() is None:
                problem = f"cannot write the tokenized data to {directory}: {error}"
                raise DataError(f"data.cache_directory: {problem}; choose another folder") from error
    return open_folder(directory)


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob("*.partial*"):
        # Another process may finish its folder meanwhile.
        with suppress(FileNotFoundError):
            newest = max(file.stat().st_mtime for file in [path, *path.rglob("*")])
            if time.time() - newest > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def open_split(work: Tokenization[StoreType], cache: str, address: str = "") -> StoreType:
    """Return the tokenized split: the store at ``address``, or cached, or tokenized now."""
    return _shared_split(work, address) if address else cached_split(work, cache, work.name)


def cached_split(
    work: Tokenization[StoreType], cache: str, name: str, shard: Shard = WHOLE_SPLIT, settings: str = ""
) -> StoreType:
    """Return a split or a shard of it, from the cache or tokenized now.

    Its description gets the digest ``settings``.
    """

    def opened(folder: Path) -> StoreType:
        def damaged(part: str) -> DataError:
            shutil.rmtree(folder, ignore_errors=True)
            problem = f"{folder}: {SHARDS}/{part} changed since the data were tokenized; the store was removed"
            return DataError(f"{problem}: run the same command to tokenize again")

        parts = unsealed((folder / MANIFEST).read_bytes())["parts"]
        store = work.store_type(StoreParts(str(folder), parts, damaged))
        store.check(CHECKED_AT_ONCE)
        return store

    def write(folder: Path) -> None:
        part = folder / SHARDS / shard.name
        part.mkdir(parents=True)
        counts = work.write(part, shard)
        arrays = {name: completed_array(part / name / "0", dtype) for name, dtype in counts.pop("types").items()}
        described = {"settings": settings, **counts, "arrays": arrays}
        (part / PART).write_text(sealed(described), encoding="utf-8")
        (folder / MANIFEST).write_text(sealed({"parts": {shard.name: described}}), encoding="utf-8")

    return open_or_build(cache, f"{work.kind}/{name}", opened, write)


def _shared_split(work: Tokenization[StoreType], address: str) -> StoreType:
    """Return the store at ``address``, or raise ConfigError if it has other settings.

    A text that can be read here is compared, but not one of tensorflow-datasets, which may be
    downloaded.
    """
    manifest = finished_manifest(address)
    settings, text = manifest["settings"], ""
    if work.settings.get("data.source") != "tfds":
        with suppress(DataError, OSError):
            text = work.text()
    here = {"layout": LAYOUT, **work.settings, "text": text or settings.get("text")}
    _require_equal(settings, here, f"data.store: {address} was tokenized")

    def damaged(part: str) -> DataError:
        again = f"run transformer-jax tokenize --output={address} --shard={part.replace('-of-', '/')} again"
        remedy = f"remove {SHARDS}/{part}/{PART} and {MANIFEST}, and {again}, with the same settings"
        return DataError(f"{address}: shard {part} is damaged; {remedy}")

    store = work.store_type(StoreParts(str(_folder(address, "data.store")), manifest["parts"], damaged))
    if not is_address(address):
        store.check(CHECKED_AT_ONCE)
    return store


def finished_manifest(address: str) -> dict[str, Any]:
    """Return the manifest of a store, or raise DataError with the missing shards and a command."""
    store = _folder(address, "data.store")
    manifest, again = _read(store / MANIFEST, unsealed), f"run transformer-jax tokenize --output={address}"
    parts = manifest.get("parts", {})
    # A description names no other folder.
    if parts and list(parts) == [Shard(index, len(parts)).name for index in range(len(parts))]:
        return manifest
    if _read(store / SETTINGS).get("layout", LAYOUT) != LAYOUT:
        raise DataError(f"data.store: {address} was written by another version; {again}, with another folder")
    complete = _complete(store)
    if not complete:
        problem = "is not a store: it has no manifest.json of tokenize, and no shard"
        raise DataError(f"data.store: {address} {problem}; {again}")
    count = complete[0].count
    if other := _of_another_count(complete, count):
        problem = f"shards of several counts ({complete[0].name}, {other.name}) and no manifest.json"
        raise DataError(f"data.store: {address} has {problem}; {again}, with another folder")
    missing = _missing(complete, count)
    listed = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
    problem = f"{len(missing)} of {count} shards are missing ({listed})" if missing else "all shards are there"
    remedy = f"{again} --shard={(missing or [0])[0]}/{count}, with the same settings, once for each"
    raise DataError(f"data.store: {address} is unfinished: it has no manifest.json, and {problem}; {remedy}")


def write_shard(work: Tokenization[Any], address: str, cache: str, shard: Shard) -> list[int]:
    """Tokenize a shard into the store at ``address`` if it is missing, and return missing shards.

    The job that completes the last writes the manifest. Raises ConfigError if the store has other
    settings or another text, and DataError if it has another number of shards, cannot be written,
    or is complete without a pair or document.
    """
    store = _folder(address, "--output")
    settings = {"layout": LAYOUT, **work.settings, "text": work.text()}
    if not _read(store / SETTINGS):
        write_whole(store / SETTINGS, _as_json(settings))
    # Another job may have written other settings meanwhile.
    _require_equal(_read(store / SETTINGS) or settings, settings, f"--output: {address} was tokenized")
    key, missing = digest([json.dumps(settings, sort_keys=True)])[:32], _still_missing(store, shard.count)
    if shard.index in missing or _described(store, shard).get("settings") != key:
        # A job that is repeated because the upload failed finds the shard in the cache.
        name = f"shard-{key}-{shard.name}"
        cached_split(work, cache, name, shard, key)
        folder = Path(cache).expanduser() / work.kind / name
        _upload(folder / SHARDS / shard.name, store / SHARDS / shard.name)
        shutil.rmtree(folder, ignore_errors=True)
        missing = _still_missing(store, shard.count)
    if not missing:
        write_whole(store / MANIFEST, sealed(_manifest(work, store, settings, key, shard.count)))
    return missing


def _manifest(
    work: Tokenization[Any], store: Path, settings: Mapping[str, object], key: str, count: int
) -> dict[str, Any]:
    """Return the manifest: settings, counts, all parts, and a digest of settings and counts."""
    parts, sizes = {}, _sizes(store / SHARDS)
    for shard in (Shard(index, count) for index in range(count)):
        parts[shard.name] = described = _described(store, shard)
        where, again = f"--output: {store}: shard {shard.name}", f"run --shard={shard.index}/{count} again"
        if described.get("settings") != key:
            raise DataError(f"{where} has other settings or another text; {again}")
        # There may be unfinished copies of killed jobs too.
        if any(sizes.get(f"{shard.name}/{array}/0") != about["size"] for array, about in described["arrays"].items()):
            problem = "is damaged: its files have other sizes than when written"
            raise DataError(f"{where} {problem}; remove {SHARDS}/{shard.name}/{PART} and {again}")
    counts = work.store_type(StoreParts(str(store), parts, DataError)).counts()
    if not counts.get("pairs", counts.get("documents")):
        read = "; ".join(f"{value:,} {name}" for name, value in counts.items() if value) or "the text is empty"
        raise DataError(f"--output: {store}: nothing of the split {settings['split']!r} is left: {read}")
    content = digest([json.dumps([{**settings, "layout": LAYOUT_OF_DIGEST}, counts], sort_keys=True)])
    return {"digest": content, "settings": settings, "counts": counts, "parts": parts}


def shared_tokenizers(address: str, settings: Mapping[str, object], key: str) -> TokenizerPair:
    """Return the tokenizers of the store at ``address``.

    Raises ConfigError, which begins with ``key``, if any of ``settings`` differs.
    """
    folder = _folder(address, key) / TOKENIZERS
    described = _read(folder / SETTINGS)
    if not described:
        finished_manifest(address)
        raise DataError(f"{key}: {address} has no tokenizers; write the store again")
    _require_equal({name: described.get(name) for name in settings}, settings, f"{key}: {address} has tokenizers")
    return load_tokenizers(folder)


def add_tokenizers(address: str, settings: Mapping[str, object], make: Callable[[], TokenizerPair]) -> None:
    """Write the tokenizers of ``make`` and ``settings`` into the store, unless it has some."""
    folder = _folder(address, "--output") / TOKENIZERS
    if not _read(folder / SETTINGS):
        save_tokenizers(make(), folder)
        write_whole(folder / SETTINGS, _as_json(settings))


def _folder(address: str, key: str) -> Path:
    """Return the folder of a store, on a disk or in a bucket.

    Raises ConfigError, which names ``key``, for an address that the user did not name, or that
    TensorStore cannot read.
    """
    if is_unasked(address):
        address = without_mark(address)
        remedy = f"name it yourself: --config.{key}={address}"
        raise ConfigError(key, f"{address} comes from the settings of a run", remedy)
    if not is_address(address):
        return Path(absolute_path(address, key))
    from transformer_jax.files.store_path import kvstore

    kvstore(address)
    return as_path(address)


def _read(file: Path, parse: Callable[[bytes], Any] = parse_json) -> dict[str, Any]:
    """Return the JSON object in a file, empty if there is none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        content = file.read_bytes()
        with suppress(ValueError):
            value = parse(content)
            return value if isinstance(value, dict) else {}
    return {}


def _described(store: Path, shard: Shard) -> dict[str, Any]:
    return _read(store / SHARDS / shard.name / PART, unsealed)


def _sizes(folder: Path) -> dict[str, int]:
    if in_store(folder):
        return {name: info["size"] for name, info in folder.objects().items()}
    return {file.relative_to(folder).as_posix(): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def _complete(store: Path) -> list[Shard]:
    """Return the complete shards, which have a description, in order."""
    matches = (_DESCRIPTION.fullmatch(name) for name in _sizes(store / SHARDS))
    return [Shard(*pair) for pair in sorted((int(match[1]), int(match[2])) for match in matches if match)]


def _of_another_count(complete: Sequence[Shard], count: int) -> Shard | None:
    return next((shard for shard in complete if shard.count != count), None)


def _missing(complete: Sequence[Shard], count: int) -> list[int]:
    return sorted(set(range(count)) - {shard.index for shard in complete})


def _still_missing(store: Path, count: int) -> list[int]:
    """Return the indices of the missing shards. Raises DataError for shards of another count."""
    complete = _complete(store)
    if other := _of_another_count(complete, count):
        problem = f"has shards of another count ({other.name})"
        raise DataError(f"--output: {store} {problem}; use that count, or another store")
    return _missing(complete, count)


def _upload(part: Path, target: Path) -> None:
    """Copy a part to a folder or bucket, each file atomically and its description last."""
    for file in (*sorted(part.glob("*/0")), part / PART):
        copy = target / file.relative_to(part)
        if in_store(copy):
            copy.upload(file)
            continue
        with appearing_file(copy) as written, file.open("rb") as content:
            shutil.copyfileobj(content, written)


def _require_equal(before: Mapping[str, object], settings: Mapping[str, object], problem: str) -> None:
    now = json.loads(_as_json(settings))
    if differing := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        name = differing[0]
        old, new = ("none" if value in (None, "") else value for value in (before.get(name), now.get(name)))
        remedy = "use the same settings and text, or another store"
        raise ConfigError(f"{problem} with {name}={old}, not {new}", remedy=remedy)


def _as_json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def open_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, config: DataConfig, *, is_training: bool
) -> TokenStore:
    """Return the store of a split, from the cache if the same content was tokenized so before.

    Filters apply only with ``is_training``. Raises DataError if no pair is left, with the number of
    pairs that each filter left out, and if the cache cannot be written.
    """
    work = PairTokenization(corpus, split, tokenizers, config if is_training else None)
    store = open_split(work, config.cache_directory, config.store if is_training else "")
    if store.num_pairs == 0:
        dropped = {reason: count for reason, count in store.statistics.dropped.items() if count}
        reasons = "; ".join(f"{count:,} of {store.statistics.read:,}: {reason}" for reason, count in dropped.items())
        limits = {
            "source above": "max_source_tokens",
            "target above": "max_target_tokens",
            "one side above": "max_length_ratio",
        }
        raised = [f"data.{name}" for start, name in limits.items() if any(r.startswith(start) for r in dropped)]
        advice = f"raise {', '.join(raised)}" if raised else "look at the text, with transformer-jax data check"
        remedy = f"left out were {reasons}; {advice}" if reasons else "the split is empty"
        raise DataError(f"data: no pair of the split {split!r} is left: {remedy}")
    return store


def open_document_store(
    source: DocumentSource, split: str, tokenizer: Tokenizer, config: SourceConfig, *, is_training: bool = False
) -> DocumentStore:
    """Return the store of a split, as ``open_token_store``, or raise DataError without text."""
    work = DocumentTokenization(source, split, tokenizer, config)
    store = open_split(work, config.cache_directory, config.store if is_training else "")
    if not store.num_documents:
        from transformer_jax.data.documents import no_text

        raise no_text(source, split)
    return store
