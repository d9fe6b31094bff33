"""StableHLO programs of a translation model, run one step at a time, and their whole search."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID
from transformer_jax.config import ConfigError, DataError
from transformer_jax.decoding.beam_search import length_penalty_divisor
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.interop.counterpart import Check, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.imported_model import require_same_shapes
from transformer_jax.tools.interop.json_object import read_object, value_of
from transformer_jax.tools.interop.opened_model import Example, OpenedModel, until_eos
from transformer_jax.tools.interop.parity import NEAR_TIE, token_log_probabilities
from transformer_jax.tools.interop.stablehlo_export import DESCRIPTION, PARAMETERS, PROGRAMS, SEARCH, TOKENIZER


def recognizes(folder: Path) -> bool:
    """Whether this is a folder of programs."""
    return (folder / DESCRIPTION).is_file()


class Counterpart:
    """The programs, on the devices that are here."""

    name = "StableHLO"
    compares_logits = True
    # Of logits; measured some 3e-6.
    tolerance = Tolerance(1e-5, 1e-5)

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        path = folder / DESCRIPTION
        described = read_object(path, "a folder that export --format=stablehlo wrote")
        self._rows, self._length, self._room, self._beams = (
            value_of(described, name, int, path) for name in ("batch_size", "source_length", "room", "beam_width")
        )
        self.longest_source, self.longest_target = self._length, self._room
        require_same_tokenizers(folder / TOKENIZER, model)
        try:
            plain = model.config.decoding.in_one_group(1)
            self._decoding = replace(plain, **{name: described[name] for name in SEARCH})
        except (KeyError, TypeError, ConfigError) as error:
            raise DataError(f"{path}: no settings of the search: {error}; export the model again") from None
        try:
            self._encode, self._start, self._step, self._search = (
                _program(folder / f"{name}.bin") for name in PROGRAMS
            )
            with np.load(folder / PARAMETERS) as stored:
                self._named = jax.device_put(dict(stored))
        # A damaged file can raise anything.
        except Exception as error:
            raise DataError(f"{folder}: not whole programs that export wrote: {str(error)[:200]}") from None
        require_same_shapes(self._named, {name: leaf.shape for name, leaf in model.named.items()}, folder / PARAMETERS)

    def checks(self, model: OpenedModel, texts: Sequence[str], examples: Sequence[Example]) -> list[Check]:
        """Hidden states of ``encode``, and translations of ``search``; one that differs must score as well."""
        del texts
        encoded = jax.jit(
            lambda params, ids: model.model.apply(
                {"params": params}, Tokens.from_ids(ids), train=False, method="encode"
            )
        )
        ours = model.translator(self._decoding).translate_ids(model.params, [each.source for each in examples])
        near, alike = 0, 0
        for first in range(0, len(examples), self._rows):
            rows = examples[first : first + self._rows]
            sources = self._padded([row.source for row in rows], self._length)
            hidden = np.asarray(encoded(model.params, sources).hidden)
            apart = np.abs(hidden - np.asarray(self._encode(self._named, sources)))
            apart = np.where(sources[..., None] == PAD_ID, 0, apart)[: len(rows)]
            near += int(np.sum(apart.max(axis=(1, 2)) <= self.tolerance.largest))
            ids = np.asarray(self._search(self._named, sources)[0])
            for row, found, best in zip(rows, ids, ours[first : first + self._rows], strict=False):
                theirs = found[found != PAD_ID].tolist()
                alike += theirs == best[0].token_ids or self._scores_as_well(model, row, theirs, best[0].score)
        return [Check("hidden states", near, len(examples)), Check("beam search", alike, len(examples))]

    def _scores_as_well(self, model: OpenedModel, row: Example, theirs: list[int], score: float) -> bool:
        example = row._replace(target=theirs)
        log_probability = token_log_probabilities(model.logits([example]), [example], never=())[0].sum()
        found = log_probability / float(length_penalty_divisor(jnp.asarray(len(theirs)), self._decoding.length_penalty))
        return bool(abs(found - score) < NEAR_TIE)

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
