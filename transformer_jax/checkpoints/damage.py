"""Damage to a checkpoint: digests are written with it, and checked before it is restored."""

import asyncio
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.future import ChainedFuture, Future

from transformer_jax.array_types import PyTree
from transformer_jax.checkpoints.format import CheckpointError, is_step
from transformer_jax.runtime.distributed import say
from transformer_jax.runtime.file_digests import Part, changed_files, has_digests, write_digests
from transformer_jax.runtime.object_store import fetch_arrays


class DigestedArrays(ocp.StandardCheckpointHandler):
    """Saves arrays; each process digests the files that it wrote, in its ``ocdbt.process_N``, before it reports the end."""

    async def async_save(self, directory: Any, *args: Any, **options: Any) -> list[Future]:
        """Returns what ends once the arrays and their digests are on disk."""
        futures = await super().async_save(directory, *args, **options)
        folder = Path(getattr(directory, "path", directory)) / f"ocdbt.process_{jax.process_index()}"
        return [ChainedFuture(futures or [], partial(_digest_if_written, folder))]


def _digest_if_written(folder: Path) -> None:
    # A process that holds no first copy of an array writes none.
    if folder.is_dir():
        write_digests(folder)


def digesting_handlers() -> ocp.DefaultCheckpointHandlerRegistry:
    """Orbax's handlers, but ``DigestedArrays`` for arrays."""
    registry, arrays = ocp.DefaultCheckpointHandlerRegistry(), DigestedArrays()
    for item in ("params", "rest"):
        for each in (ocp.args.StandardSave, ocp.args.StandardRestore):
            registry.add(item, each, arrays)
    return registry


class DigestedFolder(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """A checkpoint that gets its digests last, before it gets its name: the processes' own, and those of what Orbax merged."""

    async def finalize(self) -> None:
        """Called by process 0 when all processes have written."""
        # Orbax makes the folders of the items so, too.
        if is_step(self.get_final().name):
            await asyncio.to_thread(write_digests, Path(self.get()))
        await super().finalize()


def require_undamaged(folder: Path, items: list[str], part: Part) -> None:
    """Raises CheckpointError, which names the files, where some of these items are not as they were written.

    Downloads their arrays first where the run lies in an object store.
    """
    fetch_arrays(folder, items)
    if changed := changed_files(folder, items, part):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise CheckpointError(
            f"checkpoint {folder.name} is damaged: {', '.join(changed[:3])}{more} changed since written"
        )


def require_finite(folder: Path, params: PyTree) -> None:
    """For a checkpoint without digests, as earlier versions wrote them; finite parameters alone are ever saved."""
    if has_digests(folder):
        return
    _say_unprotected(folder.parent)
    leaves = [leaf for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [[s.data for s in leaf.addressable_shards] if isinstance(leaf, jax.Array) else [leaf] for leaf in leaves]
    if not all(bool(jnp.isfinite(part).all()) for held in parts for part in held):
        raise CheckpointError(f"restored parameters are not finite: checkpoint {folder.name} is damaged")


@cache
def _say_unprotected(directory: Path) -> None:
    """Says so once a folder."""
    say(f"{directory}: checkpoints of an earlier version, without digests: damage to them may go unnoticed", sys.stderr)
