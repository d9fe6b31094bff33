"""Parallel text in files that are named one by one, with a held-out part of the training files where asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError
from transformer_jax.config.data import spelled_files
from transformer_jax.data.sentence_pairs import SentencePair, did_you_mean, digest
from transformer_jax.data.text_files import TextCorpus


@dataclass(frozen=True)
class NamedFiles(TextCorpus):
    """Splits in ``named``, pairs of a split and its files: ``a.en,a.de``, ``a.{en,de}`` or ``a.tsv``; each plain or .gz.

    A split that is not named lies in ``directory``. Of the ``train`` split ``held_out`` pairs (below 1: a fraction), drawn by
    ``seed``, are the ``validation`` split instead; a training pair that equals one of them is left out too. Raises DataError as
    ``TextCorpus`` does, and when nothing or more than half is held out.
    """

    named: tuple[tuple[str, str], ...] = ()
    train: str = "train"
    validation: str = "validation"
    test: str = "test"
    held_out: float = 0.0
    seed: int = 0

    def pairs(self, split: str) -> Iterator[SentencePair]:
        """Streams a split in file order."""
        if not self.held_out or split not in (self.train, self.validation):
            return super().pairs(split)
        if split == self.validation:
            return iter(self._held_pairs)
        held = frozenset(self._held_pairs)
        return (pair for pair in super().pairs(self.train) if pair not in held)

    def fingerprint(self, split: str) -> str:
        """Digest of the content of the split's files, and of what was held out of them."""
        if not self.held_out or split not in (self.train, self.validation):
            return super().fingerprint(split)
        part = "training" if split == self.train else "held out"
        return digest([super().fingerprint(self.train), part, str(self.held_out), str(self.seed)])

    def count(self, split: str) -> int:
        """Number of lines of a split's first file, or of the pairs held out."""
        is_held = bool(self.held_out) and split == self.validation
        return len(self._held_pairs) if is_held else super().count(split)

    def files(self, split: str) -> tuple[Path, ...]:
        """The one (TSV) or two (source, target) files of a split."""
        named = dict(self.named).get(self.train if self.held_out and split == self.validation else split)
        if named:
            return named_files(named, f"data.{split}")
        if not self.directory:
            raise DataError(self._how_to_name(split))
        return super().files(split)

    def _how_to_name(self, split: str) -> str:
        found = [name for name, _ in self.named] + [self.validation] * bool(self.held_out)
        settings = {self.train: "train", self.validation: "validation", self.test: "test"}
        remedy = did_you_mean(split, found)
        if split in settings:
            remedy = f"; name its files with --config.data.{settings[split]}"
        if split == self.validation:
            remedy += ", or hold out training pairs: --config.data.held_out=0.01"
        return f"no split {split!r}; splits here: {', '.join(found)}{remedy}"

    @cached_property
    def _held_pairs(self) -> list[SentencePair]:
        count = sum(1 for _ in super().pairs(self.train))
        number = round(self.held_out if self.held_out >= 1 else self.held_out * count)
        if not 0 < 2 * number <= count:
            raise DataError(f"data.held_out: {number:,} of {count:,} pairs; hold out at least one, and at most half")
        chosen = set(np.random.default_rng(self.seed).choice(count, number, replace=False).tolist())
        return [pair for place, pair in enumerate(super().pairs(self.train)) if place in chosen]


def named_files(text: str, key: str) -> tuple[Path, ...]:
    """The files that ``text`` names, with ``.gz`` where only that exists.

    Raises DataError, which names ``key``, unless they are two of one language each, or one of tab-separated pairs.
    """
    names = spelled_files(text)
    if len(names) > 2 or (len(names) == 1 and not names[0].removesuffix(".gz").endswith(".tsv")):
        raise DataError(f"{key}: {text!r} is neither two files, such as train.en,train.de, nor one .tsv")
    files = []
    for name in names:
        path = Path(name).expanduser()
        found = [each for each in (path, path.with_name(f"{path.name}.gz")) if each.is_file()]
        if not found:
            raise DataError(f"{key}: {path} is not a file")
        files.append(found[0])
    return tuple(files)
