"""Writing a token store: streamed."""

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from transformer_jax.config import DataConfig
from transformer_jax.data.filters import training_filters
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.data.statistics import SideCounter, SideStatistics, StoreStatistics
from transformer_jax.data.tokenizers import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.pair_encoding import Sentences, encoded_chunks, id_type

DESCRIPTION_FILE = "store.json"
SIDES = ("source", "target")
SECONDS_UNTIL_SHOWN = 2.0
SECONDS_BETWEEN_LINES = 15.0


class SideWriter:
    """Appends the sentences of one side to ``{side}.ids`` (flat) and ``{side}.offsets`` (int64, one more than sentences)."""

    def __init__(self, directory: Path, side: str, tokenizer: Tokenizer) -> None:
        self._ids = open(directory / f"{side}.ids", "wb")  # noqa: SIM115 - closed by finish
        self._offsets = open(directory / f"{side}.offsets", "wb")  # noqa: SIM115
        self._counter = SideCounter()
        self._dtype = id_type(tokenizer)
        np.zeros(1, np.int64).tofile(self._offsets)

    def append(self, sentences: Sentences) -> None:
        """Writes sentences behind those written so far."""
        ends = self._counter.tokens + np.cumsum(sentences.lengths, dtype=np.int64)
        sentences.ids.astype(self._dtype, copy=False).tofile(self._ids)
        ends.tofile(self._offsets)
        self._counter.add(*sentences)

    def finish(self) -> SideStatistics:
        """Closes the files."""
        self._ids.close()
        self._offsets.close()
        return self._counter.result()


class TokenizingProgress:
    """Progress: a live bar on a terminal, else a plain line now and then; nothing if quick. A context manager.

    ``total`` 0: not known.
    """

    def __init__(
        self, split: str, total: int, console: Console | None = None, unit: str = "pairs", doing: str = "tokenizing"
    ) -> None:
        self._unit, self._doing = unit, doing
        self._split, self._total, self._console = split, total, console or Console(stderr=True)
        columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("", total=total or None)
        self._pairs = 0
        self._started = time.monotonic()
        self._next_line = self._started + SECONDS_UNTIL_SHOWN

    def __enter__(self) -> "TokenizingProgress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def advance(self, pairs: int) -> None:
        """Counts ``pairs`` more."""
        self._pairs += pairs
        now = time.monotonic()
        rate = self._pairs / max(now - self._started, 1e-9)
        of_total = f" of {self._total:,}" if self._total else ""
        line = f"{self._doing} {self._split}: {self._pairs:,}{of_total} {self._unit}, {rate:,.0f} a second"
        self._bar.update(self._task, description=line, completed=self._pairs)
        if now < self._next_line:
            return
        self._next_line = now + SECONDS_BETWEEN_LINES
        if self._console.is_terminal:
            self._bar.start()
        else:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_token_store(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, filtering: DataConfig | None, directory: Path
) -> None:
    """Writes the store of a split to an empty folder. ``filtering`` None keeps every pair."""
    description = _write(corpus, split, tokenizers, filtering, directory)
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2, ensure_ascii=False), encoding="utf-8")


def _write(
    corpus: Corpus, split: str, tokenizers: TokenizerPair, filtering: DataConfig | None, directory: Path
) -> dict[str, object]:
    """Writes all files but the description, which it returns."""
    dropped: Counter[str] = Counter(dict.fromkeys(training_filters(filtering) if filtering else (), 0))
    writers = [SideWriter(directory, side, tokenizer) for side, tokenizer in zip(SIDES, tokenizers, strict=True)]
    read = kept = 0
    try:
        with TokenizingProgress(split, corpus.count(split)) as progress:
            for chunk in encoded_chunks(corpus.pairs(split), tokenizers, filtering):
                read += chunk.read
                kept += len(chunk.source.lengths)
                dropped.update(chunk.dropped)
                writers[0].append(chunk.source)
                writers[1].append(chunk.target)
                progress.advance(chunk.read)
    finally:
        source, target = (writer.finish() for writer in writers)
    statistics = StoreStatistics(split, read, kept, dict(dropped), source, target)
    id_types = {side: id_type(tokenizer).name for side, tokenizer in zip(SIDES, tokenizers, strict=True)}
    return {"id_types": id_types, "statistics": statistics.to_json()}
