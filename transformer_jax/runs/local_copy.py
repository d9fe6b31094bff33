"""The local copy in which a run of an object store trains: kept where it is ahead of the store, else downloaded."""

import json
import shutil
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path

from transformer_jax.checkpoints.format import step_names
from transformer_jax.checkpoints.stored_run import (
    WRITER,
    checkpoint_of,
    described_files,
    is_of_a_run,
    is_result,
    own_checkpoints,
    run_folders,
    whole_checkpoints,
)
from transformer_jax.config import ConfigError
from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.uploads import SENT
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.runtime.described_files import load_described, save_described
from transformer_jax.runtime.object_stores import Store, StoredObject, for_each, notify


def bring_here(store: Store, base: Path) -> bytes:
    """Makes ``base/run`` what the store has, unless it was the last that was uploaded there, and may have more.

    Returns what the store's ``writer.json`` is to be from the first upload on. By it this start is recognized: ``writers.json``
    here has it, and that of the start before, as long as nothing was uploaded. A copy of this disk has them too, so the store
    must not be ahead. Raises ConfigError at an address that is not of one run, and StoreError.
    """
    folder, known, last_writer = base / "run", base / "writers.json", store.read(WRITER).decode(errors="replace")
    listed = _of_this_run(store.listing(), store.address)
    if not (folder.is_dir() and last_writer in _strings_in(known) and _newest_here(folder) >= _newest_in(listed)):
        _download(store, listed, base, is_new=not last_writer)
    writer = json.dumps({"start": uuid.uuid4().hex})
    write_whole(known, json.dumps([last_writer, writer]))
    return writer.encode()


def _of_this_run(listed: Mapping[str, StoredObject], address: str) -> dict[str, StoredObject]:
    """The objects but those of runs, and of exported models, below it; raises ConfigError where there are only such."""
    folders = run_folders(listed)
    others = sorted(folders - {""})
    if others and "" not in folders:
        raise ConfigError(f"--workdir: {address} holds other runs, {others[0]} among them; name a folder of its own")
    below = tuple(f"{folder}/" for folder in others)
    return {name: found for name, found in listed.items() if not name.startswith(below)}


def _newest_here(run: Path) -> int:
    return max(map(int, step_names(run / "checkpoints")), default=-1)


def _newest_in(listed: Collection[str]) -> int:
    whole = whole_checkpoints(listed) & own_checkpoints(listed).keys()
    return max((int(name.rpartition("/")[2]) for name in whole), default=-1)


def _strings_in(file: Path) -> list[str]:
    try:
        found = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def _download(store: Store, listed: Mapping[str, StoredObject], base: Path, is_new: bool) -> None:
    whole = whole_checkpoints(listed)
    unsound = sorted(set(own_checkpoints(listed)) - whole)
    if unsound and is_new:
        # No upload was cut short, so it is all that there is; starting over would delete it.
        raise ConfigError(
            f"--workdir: {store.address}/{unsound[0]} has no digests.json; resume a run of an earlier version in a local folder"
        )
    # What was not downloaded to the end must not look like a run.
    folder, arriving = base / "run", base / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir()
    wanted = [name for name in listed if is_of_a_run(name) and (checkpoint_of(name) or "") in {"", *whole}]
    newest = _newest_in(listed)
    if wanted:
        size = sum(listed[name].size for name in wanted)
        up_to = f", newest checkpoint {newest}" if newest >= 0 else ""
        notify(f"{store.address}: downloading {len(wanted)} files, {size / 1e6:.1f} MB{up_to}")
    for_each(lambda name: store.download(name, arriving / name, listed[name].size), wanted)
    _make_way(base, newest, store.address)
    save_described(base / SENT, described_files(arriving))
    arriving.rename(folder)


def _make_way(base: Path, newest: int, address: str) -> None:
    """Removes the copy of an earlier start; one with what the store does not have is kept under another name."""
    folder, sent = base / "run", load_described(base / SENT)
    here = described_files(folder)
    # The end of a log, which a kill may cut off anyway, is of no use where another machine went on.
    results = [name for name in here if (is_result(name) or name == "outcome.json") and sent.get(name) != here[name]]
    if _newest_here(folder) <= newest and not results:
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = folder.with_name(f"run-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}")
    what = ", ".join([f"checkpoints up to {_newest_here(folder)}"] * (_newest_here(folder) > newest) + results)
    notify(
        f"{address}: was resumed on another machine; what was not uploaded from here ({what[:200]}) is kept in {kept}; "
        "remove it when you do not need it"
    )
    folder.rename(kept)
