"""Checkpoints read with Orbax, onto any mesh or into the memory of the host, and averaged."""

import logging
import operator
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.folder import CheckpointFiles
from transformer_jax.config import DataError
from transformer_jax.errors import StoreError, first_line
from transformer_jax.files.file_digests import WHOLE, Part
from transformer_jax.files.json_text import parse_json
from transformer_jax.files.paths import in_store
from transformer_jax.run_directory.stored_checkpoints import (
    CheckpointError,
    CheckpointMismatch,
    CheckpointUnread,
    step_names,
)
from transformer_jax.runtime.distributed import say
from transformer_jax.training.state import TrainState

Progress = dict[str, Any]
"""JSON saved with a state: counters, settings, tokenizers, digests of the data."""

# TensorStore's own checksums, or a missing or short object.
_DAMAGE = re.compile(r"\b(DATA_LOSS|NOT_FOUND|OUT_OF_RANGE)\b")

TRAINED = "trained_params"
"""The item with the trained parameters if ``params`` are an average of them."""


def files_of(path: Path) -> CheckpointFiles:
    """Return the checkpoints at ``path``, on a disk or in an object store."""
    if in_store(path):
        # The libraries of object stores, which a run on a disk does without.
        from transformer_jax.checkpoints.bucket_checkpoints import CheckpointObjects

        return CheckpointObjects(path)
    return CheckpointFiles(path.absolute())


class CheckpointReader:
    """The checkpoints of a run: items ``params``, ``rest`` (optimizer, step, key), ``progress``."""

    def __init__(self, directory: Path) -> None:
        # This class reports the errors that Orbax would log.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        _ignore_abandoned_work()
        self._files = files_of(directory)

    def steps(self) -> list[int]:
        """Return the steps of the complete checkpoints, oldest first."""
        return list(map(int, step_names(self._files.path)))

    def restore(self, step: int, like: TrainState, part: Part = WHOLE) -> tuple[TrainState, Progress]:
        """Return the state of ``step`` with shapes and shardings of ``like``, arrays or shapes.

        Raises CheckpointError when it cannot be read, or a file is damaged in the ``part`` that
        this process checks.
        """
        rest = like._asdict()
        params = rest.pop("params")
        name = TRAINED if (self._files.path / str(step) / TRAINED).is_dir() else "params"
        restored = self._read(step, {name: params, "rest": rest, "progress": None}, part)
        return TrainState(params=restored[name], **restored["rest"]), restored["progress"]

    def progress(self, step: int) -> Progress:
        """Return the JSON saved with ``step``."""
        return self._read(step, {"progress": None})["progress"]

    def shapes(self, step: int, item: str = "params") -> PyTree:
        """Return shapes and types of ``params`` or ``rest`` as nested dictionaries.

        Reads their description alone. Empty for the ``rest`` of averaged parameters. Raises
        CheckpointError when the description cannot be read.
        """
        folder = self._files.path / str(step) / item
        if item == "rest" and not folder.is_dir():
            return {}
        self._files.require_undamaged(folder.parent, [f"{item}/_METADATA", f"{item}/array_metadatas"], WHOLE)
        try:
            described = ocp.StandardCheckpointHandler().metadata(folder).tree
        # A damaged file can make the reader raise anything.
        except Exception as error:
            reason = first_line(error)
            raise CheckpointError(f"{folder}: the description of the checkpoint cannot be read ({reason})") from error
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), described)

    def restore_params(self, step: int, like: PyTree) -> PyTree:
        """Return the parameters of ``step`` alone, with shapes and shardings of ``like``.

        A leaf is a NumPy array if it is one in ``like``.
        """
        try:
            return self._read(step, {"params": like})["params"]
        except CheckpointError as error:
            # Another checkpoint of the run has the same arrays.
            is_damage = not isinstance(error, CheckpointMismatch | CheckpointUnread)
            others = [other for other in self.steps() if is_damage and 0 < other != step]
            remedy = f"; use --checkpoint={max(others)}" if others else ""
            raise type(error)(f"{self._files.path}: {error}{remedy}") from error

    def restore_average(self, steps: Sequence[int], like: PyTree) -> PyTree:
        """Return the mean of the parameters of ``steps`` (paper, section 6.1), in float32."""
        total = self.restore_params(steps[0], like)
        for step in steps[1:]:
            total = jax.tree.map(operator.add, total, self.restore_params(step, like))
        return total if len(steps) == 1 else jax.tree.map(lambda leaf: leaf / len(steps), total)

    def _read(self, step: int, items: dict[str, PyTree], part: Part = WHOLE) -> dict[str, Any]:
        """Return items of a checkpoint with the shapes, types and shardings of these trees.

        ``progress`` is JSON. Raises CheckpointError when one of its files changed since it was
        written.
        """
        names = list(items)
        try:
            with self._files.listed(step) as folder:
                self._files.require_undamaged(folder, names, part)
                restored = {name: _restored(folder / name, like) for name, like in items.items()}
                has_digests = self._files.has_digests(folder, names)
        except (CheckpointError, StoreError):
            raise
        # A damaged file can raise anything: Orbax, tensorstore and json have different errors.
        except Exception as error:
            differing, reason = "", first_line(error)
            with suppress(OSError, DataError):
                differing = self._differing_arrays(step, items)
            if differing:
                remedy = "train again, or use the version and settings that wrote it"
                raise CheckpointMismatch(f"checkpoint {step} does not fit the model ({differing}); {remedy}") from error
            if self._seems_undamaged(step, names, error):
                problem = f"cannot be read, but its files seem undamaged ({reason}); run the same command again"
                raise CheckpointUnread(f"checkpoint {step} {problem}") from error
            raise CheckpointError(f"checkpoint {step} is damaged or does not fit the model ({reason})") from error
        if "params" in names and not has_digests:
            _warn_unprotected(self._files.path)
            require_finite(step, restored["params"])
        return restored

    def _seems_undamaged(self, step: int, names: list[str], error: Exception) -> bool:
        """Return whether no file is known to differ from its checksum.

        True if files cannot be read now, False if there are no checksums.
        """
        if _DAMAGE.search(str(error)):
            return False
        checkpoint = self._files.path / str(step)
        try:
            return self._files.has_digests(checkpoint, names) and not self._files.changed(checkpoint, names, WHOLE)
        except (OSError, DataError):
            return True

    def _differing_arrays(self, step: int, items: dict[str, PyTree]) -> str:
        """Return the arrays that only checkpoint or model have, or that have other shapes."""
        texts = []
        for item in sorted({"params", TRAINED, "rest"} & items.keys()):
            saved, wanted = (
                {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}
                for leaves in map(jax.tree.leaves_with_path, (self.shapes(step, item), items[item]))
            )
            for owner, names in (("checkpoint", saved.keys() - wanted), ("model", wanted.keys() - saved)):
                texts += [f"only the {owner} has {', '.join(sorted(names)[:3])}"] if names else []
            others = sorted(name for name in saved.keys() & wanted if saved[name] != wanted[name])
            texts += [f"{name} is {saved[name]} in the checkpoint, {wanted[name]} in the model" for name in others[:3]]
        return "; ".join(texts)


@cache
def _warn_unprotected(folder: Any) -> None:
    origin = "of an earlier version, or copied from or to a store"
    say(
        f"{folder}: checkpoints without digests that can be compared ({origin}): damage to them may go unnoticed",
        sys.stderr,
    )


def on_host(shapes: PyTree) -> PyTree:
    """Return uninitialized NumPy arrays of these shapes, for ``restore_params`` into memory."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), shapes)


def _restored(folder: Path, like: PyTree) -> Any:
    """Return the arrays in a folder with the shardings of ``like``, or JSON if that is None."""
    if like is None:
        return parse_json((folder / "metadata").read_bytes())
    args = ocp.args.PyTreeRestore(like, restore_args=ocp.checkpoint_utils.construct_restore_args(like))
    return ocp.PyTreeCheckpointHandler().restore(epath.Path(folder), args=args)


def require_finite(step: int, params: PyTree) -> None:
    """Raise CheckpointError when parameters are not finite."""
    leaves = [leaf for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [[s.data for s in leaf.addressable_shards] if isinstance(leaf, jax.Array) else [leaf] for leaf in leaves]
    if not all(bool(jnp.isfinite(part).all()) for shards in parts for part in shards):
        raise CheckpointError(f"restored parameters are not finite: checkpoint {step} is damaged")


def _is_news(record: logging.LogRecord) -> bool:
    return "exception was never retrieved" not in record.getMessage()


def _ignore_abandoned_work() -> None:
    """Suppress the tracebacks of reads and writes in progress when another one has failed.

    tensorstore's threads report them to a closed event loop, asyncio to its log.
    """
    logging.getLogger("asyncio").addFilter(_is_news)
    if not getattr(sys.unraisablehook, "ignores_abandoned_work", False):
        others = sys.unraisablehook

        def hook(unraisable: "sys.UnraisableHookArgs") -> None:
            if str(unraisable.exc_value) != "Event loop is closed":
                others(unraisable)

        hook.ignores_abandoned_work = True  # type: ignore[attr-defined]
        sys.unraisablehook = hook
