"""Parallel text: two files, or one file of tab-separated pairs, a split."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from transformer_jax.config import DataConfig, DataError
from transformer_jax.config.data import spelled_files
from transformer_jax.data.sentence_pairs import FileSource, SentencePair, did_you_mean, digest
from transformer_jax.data.text_files import (
    count_lines,
    hash_file,
    plain_name,
    plain_or_compressed,
    read_lines,
    says_nothing,
    text_blocks,
)
from transformer_jax.files.paths import absolute_path
from transformer_jax.registry.plugins import register

# Rows of a .tsv that tell sentences from other columns.
SAMPLED_ROWS = 100
_NO_SENTENCE = re.compile(r"://|\bCC[- ]BY\b|#\d+")


@dataclass(frozen=True)
class TextCorpus(FileSource):
    """Sentence pairs of files, plain, .gz or .xz; line n of one translates line n of the other.

    ``named``: (split, files) with files ``a.en,a.de``, ``a.{en,de}`` or ``a.tsv`` (source, tab,
    target). Any other split has the files ``{split}.{language}`` or ``{split}.tsv`` in
    ``directory``. Empty and long lines are kept: the token store filters them. Memory does not grow
    with the corpus.

    A ``tag``, such as ``<2de>`` (Johnson et al. 2017) or ``<BT>`` (Caswell et al. 2019), and a
    space precede every source.

    ``held_out`` training pairs (below 1: a fraction), drawn by ``seed``, are the ``validation``
    split instead. Training pairs equal to one of them are left out too.

    Raises DataError as ``read_lines`` does, and on a missing or ambiguous file, different line
    counts, a TSV line without exactly one tab, an empty split, and if nothing or more than half is
    held out.
    """

    directory: str
    source_language: str
    target_language: str
    named: tuple[tuple[str, str], ...] = ()
    train: str = "train"
    validation: str = "validation"
    test: str = "test"
    held_out: float = 0.0
    seed: int = 0
    tag: str = ""

    @property
    def splits(self) -> list[str]:
        return [name for name, _ in self.named] + [self.validation] * bool(self.held_out)

    def pairs(self, split: str, skipped: int = 0) -> Iterator[SentencePair]:
        """Yield a split in file order, after ``skipped`` pairs."""
        pairs = self._untagged(split, skipped)
        return (self._tagged(pair, split) for pair in pairs) if self.tag else pairs

    def _tagged(self, pair: SentencePair, split: str) -> SentencePair:
        # The filters of training recognize these pairs by their plain text.
        has_no_tag = says_nothing(pair.source) or (split == self.train and pair.source == pair.target)
        return pair if has_no_tag else pair._replace(source=f"{self.tag} {pair.source}")

    def _untagged(self, split: str, skipped: int) -> Iterator[SentencePair]:
        if self._is_held_out(split):
            return islice(self._held_pairs, skipped, None)
        if not self.held_out or split != self.train:
            return self._all_pairs(split, skipped)
        held = frozenset(self._held_pairs)
        return islice((pair for pair in self._all_pairs(split) if pair not in held), skipped, None)

    def count(self, split: str) -> int:
        """Return the number of lines of a split's first file, or of pairs held out."""
        if self._is_held_out(split):
            return len(self._held_pairs)
        return count_lines(self.files(split)[0])

    def fingerprint(self, split: str, *, with_time: bool = True) -> str:
        """Return a digest of the files and of the part that is held out, but not of the folder."""
        is_held = self._is_held_out(split)
        name = self.train if is_held else split
        hashes = [(path.name, hash_file(path, with_time=with_time)) for path in self.files(name)]
        tags = [self.tag] if self.tag else []
        content = digest([*(f"{file.removeprefix(name)} {hashed}" for file, hashed in hashes), *tags])
        if not self.held_out or name != self.train:
            return content
        return digest([content, "held out" if is_held else "training", str(self.held_out), str(self.seed)])

    def files(self, split: str) -> tuple[Path, ...]:
        """Return the files of a split: source and target, or one TSV."""
        split = self.train if self._is_held_out(split) else split
        files = dict(self.named).get(split)
        if files:
            return named_files(files, f"data.{self._settings.get(split, split)}")
        if not self.directory:
            raise DataError(self.how_to_name(split))
        folder = Path(absolute_path(self.directory, "data.directory"))
        if not folder.is_dir():
            remedy = "give the folder of the text (Multi30k: https://github.com/multi30k/dataset, data/task1/raw)"
            raise DataError(f"data.directory: {str(folder)!r} is not a folder; {remedy}")
        endings = "tsv", self.source_language, self.target_language
        table, source, target = (plain_or_compressed(folder / f"{split}.{ending}") for ending in endings)
        if table and (source or target):
            raise DataError(f"{folder}: both {table.name} and {split}.* of single languages exist; remove one")
        if table:
            return (table,)
        if not (source and target):
            raise DataError(self._missing(folder, split))
        return source, target

    def require_sound(self, split: str) -> None:
        """Raise DataError, with file and line, unless every line can be read and is translated."""
        next(self.pairs(split), None)
        files = self.files(split)
        # Several times as fast as pairs.
        if len(files) == 1 or len({sum(text.count("\n") + 1 for text in text_blocks(path)) for path in files}) > 1:
            deque(self.pairs(split), maxlen=0)

    def _is_held_out(self, split: str) -> bool:
        return bool(self.held_out) and split == self.validation

    @property
    def _held_pairs(self) -> list[SentencePair]:
        stamps = tuple(path.stat().st_mtime_ns for path in self.files(self.train))
        return _held_out(replace(self, tag=""), stamps)

    def _all_pairs(self, split: str, skipped: int = 0) -> Iterator[SentencePair]:
        paths = self.files(split)
        return _tab_separated(paths[0], skipped) if len(paths) == 1 else _side_by_side(paths[0], paths[1], skipped)

    def how_to_name(self, split: str, form: str = "") -> str:
        """Return the error for a split without files, whose flags a mixture ends with ``form``."""
        remedy = did_you_mean(split, self.splits)
        if split in self._settings:
            remedy = f"; name its files with --config.data.{self._settings[split]}{form}"
        if split == self.validation:
            remedy += ", or hold out training pairs: --config.data.held_out=0.01"
        return f"no split {split!r}; splits here: {', '.join(self.splits)}{remedy}"

    @property
    def _settings(self) -> dict[str, str]:
        """The settings of the files of splits, which may share a name."""
        return {self.test: "test", self.validation: "validation", self.train: "train"}

    def _missing(self, folder: Path, split: str) -> str:
        names = sorted(plain_name(path) for path in folder.iterdir() if path.is_file())
        for language in (self.source_language, self.target_language):
            if (inside := folder / f"{split}.{language}").is_dir():
                return f"{inside}: is a folder; expected a file with one sentence a line, or {inside.name}.gz"
        languages = sorted({name.removeprefix(f"{split}.") for name in names if name.startswith(f"{split}.")})
        if languages:
            sides = {"source_language": self.source_language, "target_language": self.target_language}
            setting, missing = next((name, language) for name, language in sides.items() if language not in languages)
            remedy = f"{did_you_mean(missing, languages)}; set --config.data.{setting}=LANGUAGE"
            listed = ", ".join(languages[:20])
            return f"{folder}: no file {split}.{missing} (or .gz, .xz); languages found: {listed}{remedy}"
        endings = self.source_language, self.target_language, "tsv"
        splits = sorted({name.rpartition(".")[0] for name in names if name.rpartition(".")[2] in endings})
        both = f"{split}.{self.source_language} and {split}.{self.target_language}"
        wanted = f"{both} (or {split}.tsv), plain, .gz or .xz"
        remedy = did_you_mean(split, splits)
        if split in ("train", "validation", "test"):
            name = next((name for name in splits if split.startswith(name)), "NAME")
            remedy += f"; where it has another name, set --config.data.{split}_split={name}"
            if (split, name) == ("validation", "NAME"):
                remedy += "; to hold out training pairs instead, set --config.data.held_out=0.01"
        listed = ", ".join(splits[:20]) or "none"
        return f"{folder}: no split {split!r}; expected {wanted}; splits found: {listed}{remedy}"


@register("data_source", "text")
def text_corpus(data: DataConfig, seed: int, tag: str = "") -> TextCorpus:
    languages = data.source_language, data.target_language
    splits = data.train_split, data.validation_split, data.test_split
    return TextCorpus(data.directory, *languages, tuple(data.files().items()), *splits, data.held_out, seed, tag)


@lru_cache(maxsize=64)
def _held_out(corpus: TextCorpus, stamps: tuple[int, ...]) -> list[SentencePair]:
    """Return the training pairs that are the validation split, read once until the files change."""
    del stamps
    count = sum(1 for _ in corpus._all_pairs(corpus.train))
    number = round(corpus.held_out if corpus.held_out >= 1 else corpus.held_out * count)
    if not 0 < 2 * number <= count:
        of_what = f"{count:,} pairs of {corpus.files(corpus.train)[-1]}"
        if count < 2:
            remedy = _hint_at_returns(*corpus.files(corpus.train)) or "; name a text, data.validation=FILES"
            raise DataError(f"data.held_out: {of_what} are too few to hold any out{remedy}")
        raise DataError(f"data.held_out: {number:,} of {of_what}; hold out at least one, and at most half")
    held_indices = set(np.random.default_rng(corpus.seed).choice(count, number, replace=False).tolist())
    pairs = [pair for index, pair in enumerate(corpus._all_pairs(corpus.train)) if index in held_indices]
    held = frozenset(pairs)
    if all(pair in held for pair in corpus._all_pairs(corpus.train)):
        file = corpus.files(corpus.train)[-1]
        remedy = "hold out fewer, or add text" if len(held) > 1 else "add other text"
        raise DataError(f"data.held_out: every pair of {file} equals one of the {len(held):,} held out; {remedy}")
    return pairs


def named_files(text: str, key: str) -> tuple[Path, ...]:
    """Return the files that ``text`` names, or else the same with ``.gz`` or ``.xz``.

    Raises DataError, which names ``key``, unless they are two existing files or one existing .tsv.
    """
    names = spelled_files(text)
    if len(names) > 2 or (len(names) == 1 and not plain_name(Path(names[0])).endswith(".tsv")):
        raise DataError(f"{key}: {text!r} is neither two files, such as train.en,train.de, nor one .tsv")
    files = []
    for name in names:
        path = Path(name).expanduser()
        file = path if path.is_file() else plain_or_compressed(path)
        if not file:
            hint = "; for several corpora set data.source=mixture" if "=" in text else ""
            raise DataError(f"{key}: {path} is not a file{hint}")
        files.append(file)
    return tuple(files)


def _tab_separated(path: Path, skipped: int) -> Iterator[SentencePair]:
    number = skipped
    for number, line in enumerate(read_lines(path, skipped), start=skipped + 1):
        if line.count("\t") != 1:
            raise tab_error(path, number, line)
        yield SentencePair(*line.split("\t"))
    if not number:
        raise DataError(f"{path}: the file is empty; expected lines of source, tab, target")


def _hint_at_returns(*paths: Path) -> str:
    """Return a remedy if a file ends its lines with carriage returns, else empty."""
    files = [path for path in paths if any("\r" in line for line in islice(read_lines(path), SAMPLED_ROWS))]
    return f"; {files[0]} has carriage returns within lines: convert them, tr '\\r' '\\n'" if files else ""


def unequal_lines(source: Path, target: Path, sources: int, targets: int) -> DataError:
    """Return the error of two files with different numbers of lines."""
    counts = f"{source} has {sources:,} lines but {target} has {targets:,}"
    return DataError(f"{counts}; line n of one must translate line n of the other{_hint_at_returns(source, target)}")


def tab_error(path: Path, number: int, line: str) -> DataError:
    """Return the error of a line of a .tsv without exactly one tab, with a command that helps."""
    tabs, remedy = line.count("\t"), "; expected source, tab, target"
    if tabs > 1:
        rows = [row.split("\t") for row in islice(read_lines(path), SAMPLED_ROWS)]
        columns = zip(*(row for row in rows if len(row) == tabs + 1), strict=True)
        texts = [column for column, values in enumerate(columns, start=1) if _is_text(values)]
        first, second = texts[:2] if len(texts) > 1 else (1, 2)
        remedy = f"; keep source and target: cut -f{first},{second} {path} > two.tsv"
    return DataError(f"{path}, line {number}: {tabs} tabs, expected exactly one, between source and target{remedy}")


def _is_text(column: Sequence[str]) -> bool:
    """Return whether a column has sentences, not numbers, codes, addresses or licenses."""
    sentences = [text for text in column if re.search(r"[^\W\d_]", text) and not _NO_SENTENCE.search(text)]
    return 2 * len(sentences) > len(column) and 2 * len(set(column)) > len(column)


def _side_by_side(source_path: Path, target_path: Path, skipped: int) -> Iterator[SentencePair]:
    lines = zip(read_lines(source_path, skipped), read_lines(target_path, skipped), strict=True)
    # As SentencePair(*line), without a call of a Python function for a pair.
    pairs = map(partial(tuple.__new__, SentencePair), lines)
    try:
        for first in pairs:
            yield first
            yield from pairs
            return
    except ValueError as error:
        # Of zip, or of a reader.
        if isinstance(error, DataError) or count_lines(source_path) == count_lines(target_path):
            raise
    sources, targets = count_lines(source_path), count_lines(target_path)
    if sources != targets:
        raise unequal_lines(source_path, target_path, sources, targets)
    if not sources:
        raise DataError(f"{source_path} and {target_path}: the files are empty; expected one sentence a line")
