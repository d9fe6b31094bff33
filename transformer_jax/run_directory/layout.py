"""The folder of a run: names of its files, its lock, ``run.json``, and checks before it is used."""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transformer_jax.config import ConfigError, DataError, ExperimentConfig, difference, load_run_config, may_change
from transformer_jax.config.run_settings import CONFIG_FILE
from transformer_jax.errors import StoreError, complain
from transformer_jax.files.atomic_files import RUN_LOCK, locked, remove_partial, require_writable, write_whole
from transformer_jax.files.checked_json import is_unchanged, read_regular, with_crc, without_crc
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import as_path, in_store, is_unasked, without_mark
from transformer_jax.registry.plugins import parts_of_file
from transformer_jax.registry.python_files import loaded_plugins, text_of_plugin
from transformer_jax.run_directory.package_origin import package_origin
from transformer_jax.run_directory.stored_checkpoints import step_names, written_settings

if TYPE_CHECKING:
    from transformer_jax.runtime.store_lock import StoreLock

REPORTED_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "sentencepiece", "sacrebleu")

# Files of a start that failed before it wrote the settings, and ``lost+found`` of file systems.
BEFORE_SETTINGS = (RUN_LOCK, "checkpoints", "outcome.json", "lost+found")
# Endings of unfinished files, and of the output of shells and schedulers.
NO_RUN = (".partial", ".log", ".out", ".err")
# "1" by --trust_config, also for the processes that a command starts.
TRUST_CONFIG = "TRANSFORMER_JAX_TRUST_CONFIG"
IDS_FILE = "trackers.json"


class RunIsBusy(ConfigError):
    """Another process is training in the ``folder``."""

    def __init__(self, problem: str, folder: Path) -> None:
        super().__init__(problem)
        self.folder = folder


class RunDirectory:
    """Names of the files of a run, on a disk or in an object store.

    All processes write checkpoints. Process 0 writes the other files; the other processes write
    theirs to ``scratch``. Libraries that need a disk (events, traces) write to ``local``. If the
    run is in a store, that is the ``scratch`` of process 0 too, and ``publish`` copies it.
    """

    def __init__(self, path: str | Path, scratch: Path | None = None, *, is_first: bool = True) -> None:
        if not str(path).strip():
            raise ConfigError("--workdir", "is empty", "give the folder of the run")
        self.path = as_path(path)
        folder = self.path if scratch is None or is_first else scratch
        self.local = scratch or self.path
        self.lock: StoreLock | None = None
        self._published: dict[Path, tuple[int, int]] = {}
        self.checkpoints = self.path / "checkpoints"
        self.config = folder / "config.json"  # The resolved settings.
        self.tokenizer = folder / "tokenizer"  # The folder of the trained tokenizers.
        # Statistics of the training data, with the number of examples left out by reason.
        self.data_report = folder / "data.json"
        self.run_record = folder / "run.json"  # Command, versions, host and devices of all starts.
        self.metrics = folder / "metrics.jsonl"  # Metrics by update, one JSON object a line.
        self.curves = folder / "curves.png"  # Plot of the metrics.
        # The folder of the text of the plugins that a start loaded.
        self.plugins = folder / "plugins"
        self.goodput = folder / "goodput.json"  # Wall time by kind, over all starts.
        # Missing while the run is in progress and after a crash.
        self.outcome = folder / "outcome.json"
        self.tracker_ids = folder / IDS_FILE  # Ids of the run in trackers, by tracker.
        # Stacks of all threads of a process that the watchdog ended.
        self.hang = folder / "hang.txt"
        self.profile = self.local / "profile"  # The folder of traces.
        self.lock_file = folder / RUN_LOCK

    def remove_partial_files(self) -> None:
        """Remove unfinished files of a killed training process. A store has none."""
        if in_store(self.config):
            return
        written = self.config, self.metrics, self.curves, self.goodput, self.outcome, self.data_report, self.run_record
        for path in (*written, *self.tokenizer.glob("tokenizer*.*")):
            remove_partial(path)

    def has_checkpoints(self) -> bool:
        return bool(self.checkpoint_steps())

    def checkpoint_steps(self) -> list[int]:
        """Return the steps of the complete checkpoints, oldest first."""
        return [int(name) for name in step_names(self.checkpoints)]

    def remove_earlier_scores(self) -> None:
        """Remove records and scores of an earlier run, whose checkpoints were removed."""
        folder = self.goodput.parent
        reports = list(folder.glob("evaluation-*.json"))
        files = [*reports, *(report.with_suffix(".txt") for report in reports)]
        for file in (self.goodput, self.tracker_ids, self.run_record, *files):
            file.unlink(missing_ok=True)

    def publish(self) -> None:
        """Copy changed files in ``local`` to the store of the run. Raises LockLost, StoreError."""
        if not in_store(self.config):
            return
        self.require_lock()
        for file in self.local.rglob("*"):
            if file.is_file():
                status = file.stat()
                version = status.st_size, status.st_mtime_ns
                if self._published.get(file) != version:
                    # A trace need not fit into memory.
                    target: Any = self.path / file.relative_to(self.local)
                    target.upload(file)
                    self._published[file] = version

    def require_lock(self) -> None:
        """Raise LockLost if another process took over the lock of the run."""
        if self.lock:
            self.lock.require_held()

    def require_no_links(self) -> None:
        """Raise ConfigError when a folder or a checkpoint of the run is a link to another one."""
        for entry in (*self.path.glob("*"), *self.checkpoints.glob("*")):
            if entry.is_symlink() and (entry.is_dir() or not entry.exists()):
                raise ConfigError(
                    "--workdir", f"{entry} is a link", "put the folder itself there: nothing is written through one"
                )

    @contextmanager
    def locked(self, refusal: str = "") -> Iterator[None]:
        """Make the folder and lock it. Removes it at the end if the run has not begun.

        Raises ConfigError when the folder cannot be written or has files that are not of a run, and
        RunIsBusy, with ``refusal``, while another process trains here.
        """
        problem = (
            f"--workdir: another process is training in {self.path}; use another folder, or --distributed for the processes "
            "of one run"
        )
        if in_store(self.path):
            require_own(self.path)
            from transformer_jax.runtime.store_lock import StoreLock

            lock = StoreLock(self.path)
            with lock.held(lambda holder: RunIsBusy(refusal or f"{problem} ({holder})", self.path)):
                self.lock = lock
                try:
                    yield
                finally:
                    self.lock = None
            return
        created = [path for path in (self.lock_file, self.path, *self.path.parents) if not path.exists()]
        self.require_no_links()
        require_own(self.path)
        require_writable(self.path, "--workdir")
        with locked(self.lock_file, RunIsBusy(refusal or problem, self.path)):
            try:
                yield
            finally:
                _remove_unused(created, self.path)

    def require_run(self, flag: str = "--workdir") -> None:
        """Raise ConfigError with the key ``flag`` unless this is the folder of a run."""
        if not self.config.is_file():
            if not self.path.is_dir():
                problem = "is a file" if self.path.exists() else "does not exist"
                raise ConfigError(flag, f"{self.path} {problem}", "give the folder that train wrote")
            files = ", ".join(sorted(entry.name for entry in self.path.iterdir())[:8]) or "nothing"
            raise ConfigError(flag, f"{self.path} is not a run directory: no config.json in it (found {files})")
        require_settings(self.path)

    def write_outcome(self, **content: Any) -> None:
        """Write ``outcome.json``, unless the folder of the run was removed."""
        if in_store(self.path) or self.path.is_dir():
            write_json(self.outcome, with_crc(content))

    def write_run(self, devices: list[str], seed: int, parameters: int, **origin: Any) -> None:
        """Append an entry for this start to ``run.json``, and keep the text of plugins.

        The text is for readers: no command runs it. ``origin``: further values of the entry.
        """
        for file in loaded_plugins():
            keep_text(self.plugins, Path(file).name, text_of_plugin(file))
        starts = read_starts(self.run_record)
        starts.append(
            {
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "command": sys.argv,
                "plugins": loaded_plugins(),
                **package_origin(),
                "host": platform.node(),
                "python": platform.python_version(),
                "packages": {name: metadata.version(name) for name in REPORTED_PACKAGES},
                "devices": devices,
                "cpu_count": os.cpu_count(),
                "seed": seed,
                "parameters": parameters,
                **origin,
            }
        )
        write_json(self.run_record, [with_crc(start) for start in starts])


class ChosenRun(NamedTuple):
    """A run to open: folder, settings, and checkpoint (``best``, ``last`` or an update)."""

    workdir: str
    config: ExperimentConfig
    checkpoint: str = "best"


def require_own(folder: Path) -> None:
    """Raise ConfigError if the folder has files but no run. Hidden files do not count."""
    entries = sorted(entry.name for entry in folder.glob("[!.]*"))
    foreign = [name for name in entries if name not in BEFORE_SETTINGS and not name.endswith(NO_RUN)]
    if foreign and CONFIG_FILE not in entries and not _has_begun(folder):
        raise ConfigError(
            "--workdir",
            f"{folder} holds files that are not of a run ({', '.join(foreign[:8])})",
            "give a new or empty folder",
        )


def require_run_to_start_from(text: str) -> None:
    """Raise ConfigError unless ``init.run`` is a run, DataError if an untrusted run names it."""
    if is_unasked(text):
        address = without_mark(text)
        raise DataError(
            f"init.run: {address} comes from the settings of a run; to open it, name it yourself: --init_from={address}"
        )
    RunDirectory(text).require_run("init.run")


def require_settings(folder: Path) -> None:
    """Raise ConfigError when settings differ from the newest readable checkpoint.

    Settings that may change when a run resumes may differ, but a changed file is reported. Does
    nothing with ``--trust_config``.
    """
    if os.environ.get(TRUST_CONFIG) == "1":
        return
    file = folder / CONFIG_FILE
    step, written = written_settings(folder / "checkpoints")
    if written:
        here = load_run_config(folder)
        changed = [change for change in difference(written, here) if not may_change(change[0], written, here)]
        if changed:
            lines = "".join(f"\n  {key}: {now!r}, in the checkpoint {before!r}" for key, before, now in changed)
            raise ConfigError(
                file,
                f"not the settings that checkpoint {step} was written with",
                f"put these back, or use them as they are with --trust_config:{lines}",
            )
    _report_if_changed(file)


# A command opens a run several times.
@cache
def _report_if_changed(file: Path) -> None:
    # ``load_run_config`` reports a file that is no JSON.
    with suppress(OSError, ValueError):
        content = parse_json(file.read_bytes())
        if isinstance(content, dict) and not is_unchanged(content):
            complain(f"transformer-jax: {file}: changed since it was written; its settings are used as they are now")


def keep_text(folder: Path, name: str, text: bytes) -> None:
    """Write a file for readers, beside another text of the same name."""
    kept = folder / name
    if kept.is_file() and kept.read_bytes() != text:
        kept = kept.with_name(f"{kept.stem}-{sha256(text).hexdigest()[:8]}{kept.suffix}")
    write_whole(kept, text)


def changed_plugins(folder: Path) -> list[str]:
    """Return the loaded plugin files that changed since the last start of the run in ``folder``.

    Files are compared by name, as a run may be resumed in another checkout. A file of another name,
    with a text that the run did not load, counts if it registers a part that the run selects.
    """
    if not loaded_plugins():
        return []
    starts = read_starts(folder / "run.json")
    saved = starts[-1].get("plugins") if starts else None
    # Runs of earlier versions have a list without digests.
    if not isinstance(saved, dict) or not saved:
        return []
    digests: dict[str, set[str]] = {}
    for file, digest in saved.items():
        digests.setdefault(Path(file).name, set()).add(str(digest))
    texts, changed = set[str]().union(*digests.values()), []
    for file, digest in loaded_plugins().items():
        name = Path(file).name
        if name in digests:
            changed += [file] * (digest not in digests[name])
        elif digest not in texts:
            selected = {(kind, part) for _, kind, part in load_run_config(folder).selections}
            if parts := [part for kind, part in parts_of_file(file) if (kind, part) in selected]:
                changed.append(f"{file} (which registers {', '.join(parts)}, as a file of another name did)")
    return changed


def require_plugins(folder: Path) -> None:
    """Raise ConfigError when a plugin file changed, unless with ``--trust_config``."""
    changed = [] if os.environ.get(TRUST_CONFIG) == "1" else changed_plugins(folder)
    if changed:
        raise ConfigError(
            "--plugin",
            f"{', '.join(changed)} changed since the run in {folder} loaded it",
            "put it back, use another --workdir, or resume with the new file by --trust_config",
        )


def _remove_unused(created: Iterable[Path], folder: Path) -> None:
    """Remove the lock and the empty folders of this start, unless the run has begun."""
    if _has_begun(folder):
        return
    with suppress(OSError):
        checkpoints = folder / "checkpoints"
        if checkpoints.is_dir():
            checkpoints.rmdir()
        for path in created:
            path.rmdir() if path.is_dir() else path.unlink()


def _has_begun(folder: Path) -> bool:
    """Return whether a start has written the settings."""
    return (folder / CONFIG_FILE).is_file() or bool(step_names(folder / "checkpoints"))


def write_json(path: Path, content: Any) -> None:
    """Replace a file atomically."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_starts(path: Path) -> list[dict[str, Any]]:
    """Return the starts in ``run.json``, none without it. Raises DataError when it is damaged."""
    try:
        return [without_crc(start) for start in list(parse_json(read_regular(path)))]
    except FileNotFoundError:
        return []
    except StoreError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: not the starts of a run ({error}); move it away to resume") from None


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest suffix of each path that distinguishes it from the others.

    ``[a/x/run, b/x/run, b/other]`` gives ``["a/x/run", "b/x/run", "other"]``. A path may be ``.``
    or have ``..``.
    """
    paths = [path.resolve() for path in paths]
    lengths = dict.fromkeys(paths, 1)
    while True:
        names = {path: "/".join(path.parts[-length:]) for path, length in lengths.items()}
        same = [path for path, name in names.items() if list(names.values()).count(name) > 1]
        if not same:
            return [names[path] for path in paths]
        lengths |= {path: lengths[path] + 1 for path in same}
