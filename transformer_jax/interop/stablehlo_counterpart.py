"""StableHLO programs of a translation model, run one step at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export as jax_export

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import DataError
from transformer_jax.interop.marian_reader import read_json
from transformer_jax.interop.opened_model import Example, OpenedModel, until_eos
from transformer_jax.interop.stablehlo_export import DESCRIPTION, PARAMETERS


def recognizes(folder: Path) -> bool:
    """Whether this is a folder of programs."""
    return (folder / DESCRIPTION).is_file()


class Counterpart:
    """The programs ``start`` and ``step``, on the devices that are here."""

    name = "StableHLO"
    compares_logits = True
    # Of logits; measured some 1e-6.
    tolerance = 1e-5

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        del model
        shapes = read_json(folder / DESCRIPTION)
        self._rows, self._beams, self._length, self._room = (
            shapes[name] for name in ("batch_size", "beam_width", "source_length", "room")
        )
        self.longest_source = self._length
        try:
            self._start, self._step = (_program(folder / f"{name}.bin") for name in ("start", "step"))
            with np.load(folder / PARAMETERS) as stored:
                self._named = dict(stored)
        # A damaged file can raise anything.
        except Exception as error:
            raise DataError(f"{folder}: not whole programs that export wrote: {str(error)[:200]}") from None

    def encode(self, texts: Sequence[str]) -> None:
        """None: they take tokens."""

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        """Logits [T, V] of every target, token by token."""
        results: list[np.ndarray] = []
        for first in range(0, len(examples), self._rows):
            rows = examples[first : first + self._rows]
            targets = self._padded([row.target for row in rows], max(len(row.target) for row in rows))
            steps = []
            logits, leaves = self._begun([row.source for row in rows])
            for place in range(targets.shape[1]):
                steps.append(logits)
                logits, leaves = self._after(targets[:, place], leaves)
            stacked = np.stack(steps, axis=1)
            results += [stacked[index, : len(row.target)] for index, row in enumerate(rows)]
        return results

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        """The greedy translation of every source, at most ``longest`` tokens, without EOS."""
        results: list[list[int]] = []
        for first in range(0, len(sources), self._rows):
            rows = sources[first : first + self._rows]
            chosen: list[np.ndarray] = []
            logits, leaves = self._begun(rows)
            while len(chosen) < min(longest, self._room):
                logits[:, [PAD_ID, BOS_ID]] = -np.inf
                chosen.append(logits.argmax(axis=-1))
                if np.all(np.any(np.stack(chosen) == EOS_ID, axis=0)):
                    break
                logits, leaves = self._after(chosen[-1], leaves)
            results += [until_eos(ids) for ids in np.stack(chosen, axis=1)[: len(rows)].tolist()]
        return results

    def _begun(self, sources: Sequence[list[int]]) -> tuple[np.ndarray, Any]:
        """Logits [B, V] of the first token, and the cache after BOS."""
        leaves = self._start(self._named, self._padded(sources, self._length))
        return self._after(np.full(self._rows, BOS_ID), leaves)

    def _after(self, tokens: np.ndarray, leaves: Any) -> tuple[np.ndarray, Any]:
        """Logits [B, V] after one more token in each row; every beam reads the same."""
        beams = np.broadcast_to(tokens[:, None], (self._rows, self._beams)).astype(np.int32)
        logits, leaves = self._step(self._named, beams, leaves)
        return np.array(logits[:, 0]), leaves

    def _padded(self, rows: Sequence[list[int]], width: int) -> np.ndarray:
        # Rows without a sentence are EOS alone.
        ids = np.full((self._rows, width), PAD_ID, np.int32)
        ids[:, 0] = EOS_ID
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
        return ids


def _program(path: Path) -> Any:
    return jax.jit(jax_export.deserialize(bytearray(path.read_bytes())).call)
