"""Remarks on input that a model never saw in training, and on output that was cut, one a kind."""

import base64
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import batched, chain
from typing import Any

import numpy as np

from transformer_jax.array_types import UNK_ID
from transformer_jax.config.mixture import tagging_command
from transformer_jax.data.text_files import visible
from transformer_jax.data.tokenizers import Tokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import BYTE_PIECE, LANGUAGE_CODE
from transformer_jax.errors import DataError, complain
from transformer_jax.files.checked_json import read_checked
from transformer_jax.run_directory.layout import RunDirectory

CUT = "cut"
REPEATS = "repeats"
SINGULAR = {"begin": "begins", "have": "has", "are": "is", "repeat": "repeats"}
OUTPUTS = {CUT: "reached the length limit and may be cut", REPEATS: "repeat the same tokens"}
"""Remarks on an output, and their text."""
# Details of a remark that are written out.
SHOWN = 12
# A longer input is reported for a model without a record of its training text.
USUAL_TOKENS = 128
# Texts whose token ids are in memory at once.
TEXTS_AT_ONCE = 4096
# Maximum tokens of a repeated sequence.
LONGEST_PERIOD = 8
# Minimum repetitions in a row.
REPETITIONS = 3
# Minimum tokens of all repetitions.
REPEATED_TOKENS = 8


@dataclass(frozen=True)
class TrainingInput:
    """The training text of a run, its sources or documents: ``longest`` in tokens, and ids seen.

    ``longest`` is without EOS. None without a record: imported models have none, and earlier
    versions did not write ids.
    """

    longest: int | None = None
    is_seen: np.ndarray | None = None

    @property
    def limit(self) -> int:
        """The length of an input, in tokens, above which it is reported."""
        return USUAL_TOKENS if self.longest is None else self.longest

    @classmethod
    def of_run(cls, run: RunDirectory) -> "TrainingInput":
        """Read the record in ``data.json`` of a run, and say if it is damaged."""
        try:
            content = read_checked(run.data_report) or {}
        except DataError as error:
            complain(f"transformer-jax: {error}; words never seen in training are not told")
            return cls()
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            training = content["training"]
            counts = training.get("source", training)
            longest, seen = counts.get("longest"), counts.get("seen")
            bits = np.frombuffer(base64.b64decode(seen, validate=True), np.uint8) if seen else None
            is_seen = None if bits is None else np.unpackbits(bits, bitorder="little").astype(bool)
            return cls(longest - 1 if isinstance(longest, int) else None, is_seen)
        return cls()

    def unseen_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the ids that the model never saw, or UNK and bytes if there is no record."""
        size = tokenizer.vocabulary_size
        if self.is_seen is not None:
            is_seen = np.pad(self.is_seen, (0, max(size - len(self.is_seen), 0)))[:size]
            return frozenset([UNK_ID, *np.flatnonzero(~is_seen).tolist()])
        if tokenizer.kind not in ("bpe", "unigram"):
            return frozenset([UNK_ID])
        pieces = tokenizer.pieces(range(size))
        return frozenset([UNK_ID, *(index for index, piece in enumerate(pieces) if BYTE_PIECE.fullmatch(piece))])


class Remarks:
    """Counts lines of an input by kind of remark, with the first.

    Args:
        name: The name of the input.
        unit: The name of its parts.
        tags: Beginnings of all sources of the training text.
        has_limit: Whether an input that is longer than in training is reported.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        training: TrainingInput,
        unit: str = "line",
        tags: Sequence[str] = (),
        has_limit: bool = True,
    ) -> None:
        self._name, self._unit, self._tokenizer, self._training = name, unit, tokenizer, training
        self._tags, self._codes = tags, tokenizer.language_codes
        self._limit = training.limit if has_limit else sys.maxsize
        self._unseen = training.unseen_ids(tokenizer)
        self._counts, self._first = Counter[str](), dict[str, int]()
        self._details: dict[str, dict[str, None]] = {}
        self._total = 0

    def read(self, texts: Sequence[str], first: int = 1) -> None:
        encoded = chain.from_iterable(
            self._tokenizer.encode_batch(several) for several in batched(texts, TEXTS_AT_ONCE)
        )
        for number, (text, ids) in enumerate(zip(texts, encoded, strict=True), start=first):
            self._total += 1
            if self._tokenizer.is_blank(text, ids):
                continue
            self._read_code(number, text)
            if not self._unseen.isdisjoint(ids) and (parts := self._unseen_parts(text, ids)):
                self._add("unseen", number, parts)
            if len(ids) > self._limit:
                self._add("long", number, [f"{len(ids):,}"])

    def read_output(self, number: int, remarks: Iterable[str]) -> None:
        for remark in remarks:
            self._add(remark, number)

    def tell(self, write: Callable[[str], Any] = complain) -> None:
        """Write the lines, and begin again."""
        for line in self.lines():
            write(line)
        self._counts, self._first, self._details, self._total = Counter(), {}, {}, 0

    def lines(self) -> list[str]:
        longest, tags = self._training.longest, ", ".join(self._tags)
        kinds = {
            "code": "begin with a language code that the vocabulary lacks",
            "no code": "begin with none of the language codes of the model",
            "no tag": f"begin with none of the tags {tags}, which all training text of the run has (data.tags)",
            "unseen": "have characters or words that the model never saw in training",
            "long": f"are longer than every source in training, {longest or 0:,} tokens",
            **OUTPUTS,
        }
        if longest is None:
            kinds["long"] = f"have over {USUAL_TOKENS} tokens, and how long the sources in training were is not known"
        lines = []
        for kind, meaning in kinds.items():
            if number := self._counts[kind]:
                verb, _, rest = meaning.partition(" ")
                meaning = f"{SINGULAR.get(verb, verb)} {rest}" if number == 1 else meaning
                count = f": {number:,} of {self._total:,} {self._unit}s" if self._total > 1 else ""
                first = f" (first: {self._unit} {self._first[kind]:,})" if self._total > 1 else ""
                lines.append(f"{self._name}{count} {meaning}{first}{self._detail(kind)}")
        return lines

    def _detail(self, kind: str) -> str:
        details = list(self._details.get(kind, ()))
        if kind == "long":
            return f": it has {details[0]}; split {'it' if self._total == 1 else 'them'} into sentences"
        if kind == "no tag":
            return f"; {tagging_command(self._tags[0])} adds one"
        if kind in OUTPUTS:
            return ""
        further = len(details) - SHOWN
        others = f" and {further:,} other{'s' * (further > 1)}" if further > 0 else ""
        codes = ", ".join(self._codes[:SHOWN]) if "code" in kind else ""
        shown = f": {' '.join(details[:SHOWN])}{others}" if details else ""
        return shown + (f"; it has {codes}{' ...' * (len(self._codes) > SHOWN)}" if codes else "")

    def _add(self, kind: str, number: int, details: Iterable[str] = ()) -> None:
        self._counts[kind] += 1
        self._first.setdefault(kind, number)
        self._details.setdefault(kind, {}).update(dict.fromkeys(details))

    def _read_code(self, number: int, text: str) -> None:
        code = LANGUAGE_CODE.match(text)
        if code and code[0] not in (*self._codes, *self._tags):
            self._add("code", number, [visible(code[0])])
        elif self._codes and not code:
            self._add("no code", number)
        if self._tags and text.partition(" ")[0] not in self._tags:
            self._add("no tag", number)

    def _unseen_parts(self, text: str, ids: Sequence[int]) -> list[str]:
        """Return the parts of a text that unseen tokens spell, in whole characters."""
        shown, spelled, is_unseen = "", b"", False
        for token, surface in zip(ids, self._tokenizer.surfaces(text), strict=True):
            spelled, is_unseen = spelled + surface, is_unseen or token in self._unseen
            with suppress(UnicodeDecodeError):
                shown += spelled.decode("utf-8") if is_unseen else " "
                spelled, is_unseen = b"", False
        return [visible(part) for part in shown.split(" ") if part]


def remarks_on_output(
    ids: Sequence[int], limit: int, source: Sequence[int], *, may_repeat: bool = False
) -> tuple[str, ...]:
    """Return the remarks on an output, which may repeat tokens if its source does."""
    is_odd = not may_repeat and repeats(ids) and not repeats(source)
    return (CUT,) * (len(ids) >= limit) + (REPEATS,) * is_odd


def repeats(ids: Sequence[int]) -> bool:
    """Return whether 1 to 8 tokens come three times or more in a row, and fill 8 or more."""
    if len(ids) < REPEATED_TOKENS:
        return False
    array = np.asarray(ids)
    for period in range(1, min(LONGEST_PERIOD, len(ids) // REPETITIONS) + 1):
        ends = np.flatnonzero(array[period:] != array[:-period])
        longest = int(np.diff([-1, *ends.tolist(), len(array) - period]).max()) - 1
        if longest + period >= max(REPEATED_TOKENS, REPETITIONS * period):
            return True
    return False
