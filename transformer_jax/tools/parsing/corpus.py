"""Treebanks as sources of sentence pairs: the words of a tree, and its symbols."""

import random
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path

from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.sentence_pairs import SentencePair, digest, generated_fingerprint, require_split
from transformer_jax.data.text_files import hash_file, plain_name, plain_or_compressed
from transformer_jax.files.paths import absolute_path
from transformer_jax.tools.parsing.generated import random_tree
from transformer_jax.tools.parsing.parsing_settings import TreebankConfig
from transformer_jax.tools.parsing.trees import Tree, normalized, read_trees, roots_of, symbols_of

GENERATED_TREES = 500
_RANGE = re.compile(r"(\d+)-(\d+)")


def linearized(tree: Tree, data: TreebankConfig) -> str:
    has = {"has_tags": data.part_of_speech, "has_positions": data.word_positions}
    return " ".join(symbols_of(tree, data.linearization, **has))


class TreeCorpus(ABC):
    """A ``Corpus`` of trees."""

    def __init__(self, data: TreebankConfig) -> None:
        if not hasattr(data, "linearization"):
            raise ConfigError("data.source", f"{data.source} takes task=parsing")
        self.config = data
        self.source_language, self.target_language = data.source_language, data.target_language

    @abstractmethod
    def trees(self, split: str) -> Iterator[Tree]:
        """Stream the normalized trees of a split."""

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Return a hexadecimal digest that changes with the content of the split."""

    def removed(self, split: str) -> Counter[str]:
        """Return the number of removals by normalization, by kind: here none."""
        return Counter()

    def pairs(self, split: str) -> Iterator[SentencePair]:
        for tree in self.trees(split):
            yield SentencePair(tree.sentence, linearized(tree, self.config))

    def count(self, split: str) -> int:
        return sum(1 for _ in self.trees(split))

    @property
    def form(self) -> str:
        positions = " positions" * self.config.word_positions
        return f"{self.config.linearization} {self.config.part_of_speech}{positions}"


class Treebank(TreeCorpus):
    """Files of bracketed trees: ``{split}.mrg``, plain or compressed, or those below ``{split}/``.

    Raises DataError, with file and line, for damaged trees, and for missing and empty splits.
    """

    def trees(self, split: str) -> Iterator[Tree]:
        return _read(tuple(self.files(split)), Counter())

    def removed(self, split: str) -> Counter[str]:
        return +_survey(tuple(self.files(split)))[1]

    def count(self, split: str) -> int:
        return _survey(tuple(self.files(split)))[0]

    def fingerprint(self, split: str) -> str:
        files = tuple(self.files(split))
        return digest([self.form, *map(hash_file, files), *_further_roots(files)])

    def files(self, split: str) -> list[Path]:
        folder = Path(absolute_path(self.config.directory, "data.directory"))
        if not folder.is_dir():
            raise DataError(f"data.directory: {str(folder)!r} is not a folder")
        file = plain_or_compressed(folder / f"{split}.mrg")
        if file:
            return [file]
        limits = _RANGE.fullmatch(split)
        names = [f"{number:02}" for number in range(int(limits[1]), int(limits[2]) + 1)] if limits else [split]
        sections = {name: _files_below(folder / name) for name in names}
        missing = [name for name, files in sections.items() if not files]
        if len(missing) == len(names):
            wanted = f"{split}.mrg (or .gz, .xz) or a folder {split} with .mrg files"
            raise DataError(f"{folder}: no split {split!r}; expected {wanted}")
        if missing:
            raise DataError(f"{folder}: split {split!r} lacks .mrg files in the folders {', '.join(missing)}")
        return [file for files in sections.values() for file in files]


def _files_below(folder: Path) -> list[Path]:
    """Return the files of trees, sorted. Of a plain and a compressed copy the first one counts."""
    files: dict[Path, Path] = {}
    for path in sorted(folder.rglob("*.mrg*")):
        if (name := plain_name(path)).endswith(".mrg"):
            files.setdefault(path.with_name(name), path)
    return [*files.values()]


def _trees(files: tuple[Path, ...]) -> Iterator[Tree]:
    return (located.tree for file in files for located in read_trees(file))


@cache
def _roots(files: tuple[Path, ...]) -> tuple[str, ...]:
    return roots_of(partial(_trees, files))


def _further_roots(files: tuple[Path, ...]) -> list[str]:
    """Return the roots of the first tree, or none if earlier versions removed them too."""
    counts, tree = Counter[str](), next(_trees(files), Tree(""))
    normalized(tree, counts, _roots(files))
    roots = [""] * (not tree.label) + sorted(name for name in counts if name.startswith("roots "))
    return roots if len(roots) > 1 or not set(roots) <= {"", "roots TOP", "roots ROOT", "roots S1"} else []


def _read(files: tuple[Path, ...], counts: Counter[str]) -> Iterator[Tree]:
    is_empty, roots = True, _roots(files)
    for file in files:
        for located in read_trees(file):
            tree = normalized(located.tree, counts, roots)
            if tree is None:
                counts["trees of traces only, left out"] += 1
                continue
            yield tree
            is_empty = False
    if is_empty:
        raise DataError(f"{files[0]}: no tree with words")


@cache
def _survey(files: tuple[Path, ...]) -> tuple[int, Counter[str]]:
    """Return the number of trees, and the counts of removals."""
    counts = Counter[str]()
    return sum(1 for _ in _read(files, counts)), counts


class GeneratedTreebank(TreeCorpus):
    """Trees of a grammar: ``data.generated_pairs`` to train on, 500 others for other splits."""

    def __init__(self, data: TreebankConfig, seed: int) -> None:
        super().__init__(data)
        self.seed = seed

    def trees(self, split: str) -> Iterator[Tree]:
        splits = self.config.train_split, self.config.validation_split, self.config.test_split
        require_split(split, splits, "data.source=generated_treebank")
        generator = random.Random(f"{self.seed} {split}")
        trees = (random_tree(generator) for _ in iter(int, 1))
        if split == self.config.train_split:
            return islice(trees, self.config.generated_pairs)
        trained = {tree.sentence for tree in self.trees(self.config.train_split)}
        return islice((tree for tree in trees if tree.sentence not in trained), GENERATED_TREES)

    def count(self, split: str) -> int:
        return self.config.generated_pairs if split == self.config.train_split else GENERATED_TREES

    def fingerprint(self, split: str) -> str:
        return generated_fingerprint(self, split, (self.form, self.seed, self.count(split)))
