"""Faults of two files, or of a .tsv, that make training or scores useless, from a sample of pairs.

All texts are examined alike. All but the training text are compared with it.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import numpy as np
import regex

from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.text_files import says_nothing
from transformer_jax.tools.data_check.lexicon import Lexicon, reversed_lines
from transformer_jax.tools.data_check.line_shift import GROUP, LineShift, Stretch, line_shift, stretches_of

# Consecutive pairs that are read together. Two thirds of them teach the lexicon, and the others are
# scored.
RUN = 64
LEARNED_OF_THREE = 2
# Fewer pairs teach no lexicon.
MIN_LEARNED = 500
# Fewer scored pairs, or words of a pair, tell nothing.
MIN_SCORED = 30
MIN_KNOWN_WORDS = 3
# Training pairs that are read for the lexicon, by default and for a thorough examination.
READ = 2400
READ_THOROUGHLY = 15_000
# Pairs of another text that are scored.
READ_OF_TEXT = 1000
# Estimated share of lines that translate another line or none which is reported, by the number of
# scored pairs. Clean text has up to 3 % by 2,500 pairs, 4.5 % by 600 and 10 % by 300.
MISMATCHED = {2500: 0.04, 600: 0.08, 300: 0.16}
# The same share of a text that resembles the training text, above the share of that. Noisy pairs of
# WMT have 7 to 13 %.
MISMATCHED_MORE = 0.06
# The same share of a text with fewer scored pairs than MANY_OF_TEXT.
MISMATCHED_OF_FEW = 0.25
MANY_OF_TEXT = 500
# The same share of a text of another domain, which has up to 18 %.
MISMATCHED_OF_OTHER = 0.4
# Share of pairs that score higher than TELLS_APART of random pairs, if their words have a relation.
RELATED = 0.45
TELLS_APART = 0.75
# Lags in lines that the words are searched for, and scored pairs that share a lag.
SEARCHED_LAGS = range(-20, 21)
LAG_GROUP = 8
# Maximum evidence of one pair, and the mean evidence that confirms a lag.
MAX_EVIDENCE = 3.0
MIN_EVIDENCE = 0.75
# Pairs that teach the lexicon of a shifted text.
LAG_PAIRS = 900
# Pairs that are searched for reversed sides.
REVERSED_PAIRS = 1000
MIN_REVERSED = 60
# Reported share of lines with reversed sides, of many pairs and of few.
REVERSED = 0.02
REVERSED_OF_FEW = 0.1
# Share of lines with reversed sides in a text with swapped sides.
SWAPPED = 0.8
# Sides that share more of their words do not tell the direction.
MAX_OVERLAP = 0.4
# Share of held-out pairs in the right order, if words tell the direction.
IN_ORDER = 0.9
# Frequent words of a line, on average, that tell the direction.
MIN_FREQUENT = 1.0
# Reported shares of copies in a training text, and in another text above that.
COPIES = 0.2
MORE_COPIES = 0.04
# Shares that make training or scores useless.
ALL_COPIES = 0.95
ALL_EMPTY = 0.95
# Reported share of unknown words, and the difference to held-out pairs.
UNKNOWN = 0.7
MORE_UNKNOWN = 0.4
# Difference in unknown words of a text of another domain.
MORE_UNKNOWN_IN_DOMAIN = 0.06
# Lines that are read for their form.
READ_FOR_FORM = 400
# Letters with a case, in text whose case is compared.
MIN_CASED = 500
# Shares of capitals: lower-cased text is below LOWER, text in capitals from UPPER on. Between LOWER
# and CASED nothing is said.
LOWER = 0.001
CASED = 0.01
UPPER = 0.9
# Punctuation marks of tokenized text, and the share of them after a space.
MIN_MARKS = 20
SPACED_MARKS = 0.9
# Lines of text that is split into subwords, and the share of them with signs of that.
MIN_PIECED = 20
PIECED = 0.3
# Reported shares of misread lines and of duplicates.
MISREAD = 0.02
DUPLICATES = 0.2
SHOWN_LINES = 3
# Lower-case letters without upper-case ones in use.
_UNICAMERAL = regex.compile(r"\p{Georgian}+")
_MARK = regex.compile(r"(?<=[\p{L}\p{N}])( ?)[.,\u3001\u3002](?= |$)")
_PIECES = regex.compile(r"@@ |^\u2581| \u2581")


class Finding(NamedTuple):
    """A fault. ``is_serious``: training would be useless, or scores meaningless.

    ``share``: estimated share of the lines. ``lines``: the first or worst of them.
    """

    kind: str
    text: str
    is_serious: bool = False
    share: float = 0.0
    lines: tuple[int, ...] = ()


class Examination(NamedTuple):
    """Faults, remarks on the form of the text, and reasons why checks are missing, by fault."""

    findings: list[Finding]
    notes: list[str]
    unchecked: dict[str, str]


class PairText(NamedTuple):
    """Sampled ``pairs`` of a text of ``total`` lines, their ``lines`` from 1, and side ``names``.

    ``called``: ``the training text``.
    """

    called: str
    names: tuple[str, str]
    total: int
    lines: np.ndarray
    pairs: Sequence[SentencePair]

    @property
    def of_lines(self) -> str:
        """``1,014 lines``, or the size of the sample."""
        sampled = f"{len(self.pairs):,} sampled lines"
        return f"{self.total:,} lines" if len(self.pairs) == self.total else sampled


class Form(NamedTuple):
    """Letters and spaces of one side, None if there is too little text to tell."""

    is_lower: bool | None
    is_upper: bool | None
    is_tokenized: bool | None
    has_pieces: bool | None

    @property
    def names(self) -> list[str]:
        """The forms that raw text does not have."""
        descriptions = {"lower-cased": self.is_lower, "in capitals": self.is_upper}
        descriptions["tokenized, with spaces before commas and periods"] = self.is_tokenized
        descriptions["split into subwords"] = self.has_pieces
        return [name for name, has in descriptions.items() if has]


class TrainingWords:
    """A lexicon of a training text, the forms of its sides, and scores of held-out pairs."""

    def __init__(self, text: PairText, most: int = READ) -> None:
        read = _runs(len(text.pairs), most)
        is_learned = np.arange(len(read)) // RUN % 3 < LEARNED_OF_THREE
        learned, self.text, self.scored = read[is_learned], text, read[~is_learned]
        self.has_lexicon = len(learned) >= MIN_LEARNED and len(self.scored) >= MIN_SCORED
        self._learned = [text.pairs[index] for index in learned] if self.has_lexicon else []
        self.forms = _forms(text)

    @cached_property
    def lexicon(self) -> Lexicon:
        """Learned from two thirds of the pairs that are read."""
        return Lexicon(self._learned)

    @cached_property
    def held_out(self) -> "ScoredPairs":
        """The scores of the other pairs."""
        return ScoredPairs(self.lexicon, self.text, self.scored)

    @cached_property
    def tells_sides(self) -> bool:
        """Whether words tell the source from the target, as they do in two languages."""
        return self.lexicon.overlap <= MAX_OVERLAP and float(np.mean(self.held_out.orientation > 0)) >= IN_ORDER


class ScoredPairs:
    """Pairs of a text with scores by a lexicon, compared with the targets of other pairs."""

    def __init__(self, lexicon: Lexicon, text: PairText, indices: np.ndarray) -> None:
        self.text, self.indices, self._lexicon = text, indices, lexicon
        self.sources, self.targets = (
            lexicon.words([text.pairs[index][side] for index in indices.tolist()]) for side in (0, 1)
        )
        self.scores, known_words = lexicon.scores(self.sources, self.targets)
        other = self.targets.of_lines(np.roll(np.arange(len(indices)), len(indices) // 2))
        others, other_known = lexicon.scores(self.sources, other)
        is_copy = np.array([_is_copy(text.pairs[index]) for index in indices.tolist()], bool)
        self.is_scored = (known_words >= MIN_KNOWN_WORDS) & (self.sources.counts > 0) & ~is_copy
        others = others[(other_known >= MIN_KNOWN_WORDS) & (self.sources.counts > 0)]
        self.threshold = float(np.median(others)) if len(others) else 0.0
        self.relation = (
            float(np.mean(self.scores[self.is_scored] > np.quantile(others, TELLS_APART)))
            if len(others) and self.number
            else 0.0
        )

    @property
    def number(self) -> int:
        """Number of pairs with enough known words."""
        return int(self.is_scored.sum())

    @cached_property
    def orientation(self) -> np.ndarray:
        """The log-likelihood of the order of sides minus the reverse order, if they differ."""
        differences = self._lexicon.orientation(self.sources, self.targets)
        return differences[np.abs(differences) > 1]

    @property
    def mismatched(self) -> float:
        """The estimated share of pairs that do not translate each other.

        Half of these are below the threshold.
        """
        return min(2 * float(np.mean(self.scores[self.is_scored] < self.threshold)), 1.0) if self.number else 0.0

    @property
    def worst(self) -> list[int]:
        """The pairs of the text below the threshold, the lowest score first."""
        below = np.flatnonzero(self.is_scored & (self.scores < self.threshold))
        return self.indices[below[np.argsort(self.scores[below])]].tolist()

    def unknown(self, side: int) -> float:
        """Return the share of words that the lexicon lacks on this side."""
        return self._lexicon.unknown((self.sources, self.targets)[side], side)


def examine(text: PairText, training: TrainingWords | None = None, *, thorough: bool = False) -> Examination:
    """Examine a text. ``training`` is of the same text, or of the training text.

    ``thorough``: report small shares of lines that translate another one.
    """
    sides = zip(text.names, zip(*text.pairs, strict=True) if text.pairs else (), strict=False)
    returns = [finding for name, side in sides for finding in carriage_returns(name, text.lines, side)]
    findings = [*_empty(text), *_columns(text), *returns, *_copies(text, training), *_misread(text), *_duplicates(text)]
    examination = Examination(findings, [], {})
    if any(finding.is_serious for finding in findings):
        return examination
    is_training_text = training is not None and training.text is text
    if training is None or is_training_text:
        examination.notes.extend(
            f"{name} is {' and '.join(form.names)}; BLEU of raw text cannot be compared with its scores"
            for name, form in zip(text.names, _forms(text), strict=True)
            if form.names
        )
    learned = training if training is not None and training.has_lexicon else None
    scored = None
    if learned:
        indices = learned.scored if is_training_text else _runs(len(text.pairs), READ_OF_TEXT)
        scored = learned.held_out if is_training_text else ScoredPairs(learned.lexicon, text, indices)
    order = _order_of_sides(text, learned, examination.unchecked)
    if learned and scored and not is_training_text:
        order = _against_training(scored, learned, examination.unchecked) or order
    if training is not None and not is_training_text and not order:
        findings.extend(_other_forms(text, training))
    findings.extend(order or _lines(text, scored, learned, examination.unchecked, thorough=thorough))
    return examination


def _runs(number: int, most: int) -> np.ndarray:
    """Return about ``most`` indices below ``number``, in runs at even distances."""
    if number <= most:
        return np.arange(number)
    starts = np.unique(np.linspace(0, number // RUN, max(most // RUN, 1)).astype(int)) * RUN
    indices = (starts[:, None] + np.arange(RUN)).ravel()
    return indices[indices < number]


def _lines(
    text: PairText,
    scored: ScoredPairs | None,
    training: TrainingWords | None,
    unchecked: dict[str, str],
    *,
    thorough: bool,
) -> list[Finding]:
    """Find lines that translate another line or none, by lengths and words."""
    lengths = line_shift(text.lines - 1, np.array([[*map(len, pair)] for pair in text.pairs]).reshape(-1, 2))
    is_training_text = training is not None and training.text is text
    if training is None or scored is None:
        if len(text.pairs) < GROUP:
            unchecked["shifted"] = f"whether lines are shifted, which needs {GROUP} lines or a training text"
        needed = f"{MIN_LEARNED * 3 // LEARNED_OF_THREE} lines of training text"
        unchecked["mismatched"] = f"whether the words of lines translate each other, which needs {needed}"
    elif min(float(np.mean(side.counts)) for side in (scored.sources, scored.targets)) < MIN_KNOWN_WORDS:
        unchecked["mismatched"] = "whether the words of lines translate each other, since lines have few words"
    elif training.held_out.relation < RELATED:
        findings = _unrelated(text, lengths) if is_training_text else []
        # Lines of one language, such as questions and answers, need not translate each other.
        if findings and (training.lexicon.overlap <= MAX_OVERLAP or findings[0].kind == "shifted"):
            return findings
        reason = "which the training text does not teach"
        unchecked["mismatched"] = f"whether the words of lines translate each other, {reason}"
        if is_training_text:
            return []
    elif scored.number < MIN_SCORED:
        reason = f"which needs {MIN_SCORED} lines with {MIN_KNOWN_WORDS} words of the training text"
        unchecked["mismatched"] = f"whether the words of lines translate each other, {reason}"
    else:
        limit = _limit(scored, training, thorough=thorough and is_training_text)
        if lengths.is_shifted or scored.mismatched >= limit:
            lengths = _confirmed(lengths, scored, training.lexicon)
        if not lengths.is_shifted and scored.mismatched >= limit:
            about = f"about {scored.mismatched:.0%} of the lines of {text.called} do not translate each other, by their words"
            examples = tuple(text.lines[scored.worst[:SHOWN_LINES]].tolist())
            where = f"{about}; examples: lines {_listed(examples)}"
            return [Finding("mismatched", where, share=scored.mismatched, lines=examples)]
        if thorough and limit > min(MISMATCHED.values()):
            some = f"whether fewer than {limit:.0%} of the lines have words that do not translate each other"
            needed = f"which needs {max(MISMATCHED) * 3:,} lines of {MIN_KNOWN_WORDS} words or more"
            unchecked["mismatched"] = f"{some}, {needed}"
    return _shifted(text, lengths)


def _limit(scored: ScoredPairs, training: TrainingWords, *, thorough: bool) -> float:
    """Return the estimated share of mismatched lines that is reported."""
    if scored is training.held_out:
        limits = [limit for number, limit in MISMATCHED.items() if scored.number >= number]
        return next(iter(limits if thorough else limits[-1:]), MISMATCHED_OF_FEW)
    if scored.unknown(1) > training.held_out.unknown(1) + MORE_UNKNOWN_IN_DOMAIN:
        return MISMATCHED_OF_OTHER
    is_many = scored.number >= MANY_OF_TEXT
    return min(training.held_out.mismatched + MISMATCHED_MORE, MISMATCHED_OF_FEW) if is_many else MISMATCHED_OF_FEW


def _empty(text: PairText) -> list[Finding]:
    findings = []
    for side, name in enumerate(text.names):
        empty = [line for line, pair in zip(text.lines, text.pairs, strict=True) if says_nothing(pair[side])]
        if len(text.pairs) < 2 and len(empty) == len(text.pairs):
            subject = "the only line" if text.pairs else "the file"
            findings.append(Finding("empty", f"{name}: {subject} is empty", is_serious=True))
        elif len(empty) >= ALL_EMPTY * len(text.pairs):
            number = "all" if len(empty) == len(text.pairs) else f"{len(empty):,} of"
            findings.append(Finding("empty", f"{name}: {number} {text.of_lines} are empty", is_serious=True))
        elif empty:
            lines = f"{len(empty):,} of {text.of_lines} {'is' if len(empty) == 1 else 'are'} empty"
            findings.append(Finding("empty", f"{name}: {lines}, the first is line {empty[0]:,}"))
    return findings


def _columns(text: PairText) -> list[Finding]:
    """Find sides of several columns: a table instead of a text."""
    findings = []
    for side, name in enumerate(text.names):
        tabs = [pair[side].count("\t") for pair in text.pairs]
        if len(tabs) >= SHOWN_LINES and min(tabs) == max(tabs) > 0:
            columns = f"all {text.of_lines} have {tabs[0] + 1} columns, separated by tabs"
            remedy = f"keep one column: cut -f{side + 1} {name} > TEXT"
            findings.append(Finding("columns", f"{name}: {columns}; {remedy}", is_serious=True))
    return findings


def carriage_returns(name: str, lines: np.ndarray, texts: Sequence[str]) -> list[Finding]:
    """Find carriage returns in lines, as in files with another end of line."""
    counts = np.array([text.count("\r") for text in texts])
    if not counts.sum():
        return []
    if counts.sum() >= len(counts):
        remedy = f"lines end with carriage returns only; convert them: tr '\\r' '\\n' < {name}"
        return [Finding("carriage returns", f"{name}: {remedy}", is_serious=True)]
    number, first = np.count_nonzero(counts), lines[np.flatnonzero(counts)[0]]
    inside = f"{number:,} of {len(counts):,} lines have a carriage return inside, the first is line {first:,}"
    return [Finding("carriage returns", f"{name}: {inside}")]


def _is_copy(pair: SentencePair) -> bool:
    return pair.source.strip() == pair.target.strip()


def _copies(text: PairText, training: TrainingWords | None) -> list[Finding]:
    full = [(line, pair) for line, pair in zip(text.lines, text.pairs, strict=True) if not says_nothing(pair.source)]
    copies = [line for line, pair in full if _is_copy(pair)]
    is_other, least = training is not None and training.text is not text, COPIES
    if training and is_other:
        least = sum(map(_is_copy, training.text.pairs)) / max(len(training.text.pairs), 1) + MORE_COPIES
    if not full or len(copies) < least * len(full) or len(full) < MIN_SCORED:
        return []
    source, target = text.names
    if len(copies) >= ALL_COPIES * len(full):
        number = "all lines are" if len(copies) == len(full) else f"{len(copies) / len(full):.0%} of the lines are"
        return [Finding("copies", f"{source} and {target}: {number} equal: the target is the source", is_serious=True)]
    share = f"{len(copies) / len(full):.0%} of the lines equal their source, the first is line {copies[0]:,}"
    return [Finding("copies", f"{target}: {share}{'; such training pairs are left out' * (not is_other)}")]


def _misread(text: PairText) -> list[Finding]:
    findings = []
    for side, name in enumerate(text.names):
        lines = [line for line, pair in zip(text.lines, text.pairs, strict=True) if _is_misread(pair[side])]
        if len(lines) >= max(SHOWN_LINES, MISREAD * len(text.pairs)):
            share = f"{len(lines) / len(text.pairs):.0%} of the lines are UTF-8 that was read as Latin-1"
            findings.append(Finding("misread", f"{name}: {share}, the first is line {lines[0]:,}"))
    return findings


def _is_misread(line: str) -> bool:
    for encoding in () if line.isascii() else ("latin-1", "cp1252"):
        with suppress(UnicodeError):
            line.encode(encoding).decode()
            return True
    return False


def _duplicates(text: PairText) -> list[Finding]:
    first = dict(zip(reversed(text.pairs), reversed(text.lines), strict=True))
    number = len(text.pairs) - len(first)
    if len(text.pairs) < MIN_SCORED or number < DUPLICATES * len(text.pairs):
        return []
    line = next(line for line, pair in zip(text.lines, text.pairs, strict=True) if first[pair] != line)
    share = f"{number / len(text.pairs):.0%} of the pairs of {' and '.join(text.names)} repeat an earlier pair"
    return [Finding("duplicates", f"{share}, the first is line {line:,}")]


def _shifted(text: PairText, shift: LineShift) -> list[Finding]:
    if not shift.is_shifted:
        return []
    where = "; ".join(shift.descriptions(*text.names))
    return [Finding("shifted", f"the sides of {text.called} are shifted: {where}; see transformer-jax data check")]


def _order_of_sides(text: PairText, training: TrainingWords | None, unchecked: dict[str, str]) -> list[Finding]:
    """Find lines whose sides are in the rarer order, by the words of both texts."""
    spread = np.linspace(0, max(len(text.pairs) - 1, 0), REVERSED_PAIRS if text.pairs else 0)
    indices = np.unique(spread.astype(int))
    if len(indices) < MIN_REVERSED:
        unchecked["reversed"] = f"whether lines have reversed sides, which needs {MIN_REVERSED} lines"
        return []
    pairs = [text.pairs[index] for index in indices]
    is_reversed, overlap, coverage = reversed_lines(pairs)
    if coverage < MIN_FREQUENT:
        unchecked["reversed"] = "whether lines have reversed sides, since lines have few frequent words"
        return []
    if overlap > MAX_OVERLAP:
        unchecked["reversed"] = "whether lines have reversed sides, since both sides have the same words"
        return []
    least = REVERSED if len(indices) >= REVERSED_PAIRS / 2 else REVERSED_OF_FEW
    if training and training.tells_sides:
        # Few lines have enough frequent words to tell alone.
        sides = (training.lexicon.words([pair[side] for pair in pairs]) for side in (0, 1))
        is_other, least = training.lexicon.orientation(*sides) < -1, REVERSED
        is_reversed &= is_other if is_other.mean() < 0.5 else ~is_other
    return _reversed(text, float(np.mean(is_reversed)), text.lines[indices[is_reversed]], least)


def _reversed(text: PairText, share: float, lines: np.ndarray, least: float = REVERSED) -> list[Finding]:
    if share < least or not len(lines):
        return []
    source, target = text.names
    where = f"in about {share:.0%} of the lines of {source} and {target} the sides are reversed"
    first = tuple(lines[:SHOWN_LINES].tolist())
    return [Finding("reversed", f"{where}, the first are lines {_listed(first)}", share=share, lines=first)]


def _against_training(scored: ScoredPairs, training: TrainingWords, unchecked: dict[str, str]) -> list[Finding]:
    """Find sides with words of the other side of the training text, or of neither."""
    text, (source, target) = scored.text, scored.text.names
    if not training.tells_sides:
        unchecked["swapped"] = "whether sides are swapped, since both sides of the training text have similar words"
    elif len(scored.orientation):
        is_reversed = scored.orientation < 0
        share = float(np.mean(is_reversed))
        if share >= SWAPPED:
            names = f"{source} has the words of {training.text.names[1]}, and {target} of {training.text.names[0]}"
            return [Finding("swapped", f"the sides of {text.called} are swapped: {names}", is_serious=True)]
        if share >= REVERSED_OF_FEW and is_reversed.sum() >= 3:
            orders = training.lexicon.orientation(scored.sources, scored.targets)
            return _reversed(text, share, text.lines[scored.indices[orders < -1]])
    for side, name in enumerate(text.names):
        share = scored.unknown(side)
        if share < max(UNKNOWN, training.held_out.unknown(side) + MORE_UNKNOWN):
            continue
        if scored.number < MIN_SCORED or scored.mismatched > MISMATCHED_OF_FEW:
            sample = f"a sample of {training.text.names[side]}"
            problem = (
                f"{share:.0%} of the words of {name} do not occur in {sample}: another language, script or encoding"
            )
            return [Finding("other words", problem)]
    return []


def _confirmed(lengths: LineShift, scored: ScoredPairs, lexicon: Lexicon) -> LineShift:
    """Return the shift that words confirm: ``lengths``, which is more exact, or up to 20 lines."""
    text, lags = scored.text, list(SEARCHED_LAGS)
    index_of = {int(line): index for index, line in enumerate(text.lines)}
    targets = lexicon.words([pair.target for pair in text.pairs])
    lines, evidence = text.lines[scored.indices], np.zeros((len(lags), len(scored.indices)))
    for row, lag in zip(evidence, lags, strict=True):
        others = np.array([index_of.get(int(line) + lag, -1) for line in lines])
        has_other = np.flatnonzero(others >= 0)
        scores, known_words = lexicon.scores(scored.sources.of_lines(has_other), targets.of_lines(others[has_other]))
        # Half of the scores of other lines are below 0.
        row[has_other] = np.where(known_words >= MIN_KNOWN_WORDS, scores - scored.threshold, 0.0)
    evidence = np.clip(evidence, -MAX_EVIDENCE, MAX_EVIDENCE)
    words = LineShift(stretches_of(lines - 1, evidence, lags, LAG_GROUP), 1.0)

    def is_confirmed(shift: LineShift) -> bool:
        begins = [stretch.line for stretch in shift.stretches]
        of_lines = np.searchsorted(begins, lines, side="right").clip(1) - 1
        shifted = [number for number, stretch in enumerate(shift.stretches) if stretch.lag]
        means = [
            evidence[lags.index(shift.stretches[number].lag), of_lines == number].mean()
            for number in shifted
            if np.count_nonzero(of_lines == number) >= LAG_GROUP
        ]
        return bool(shifted) and all(mean >= MIN_EVIDENCE for mean in means)

    same = {stretch.lag for stretch in lengths.stretches} == {stretch.lag for stretch in words.stretches}
    if is_confirmed(lengths) and (same or not words.is_shifted):
        return lengths
    return words if is_confirmed(words) else LineShift([Stretch(1, 0)], lengths.correlation)


def _unrelated(text: PairText, lengths: LineShift) -> list[Finding]:
    """Find sides whose words have no relation: they are shifted, or no translations."""
    pairs = text.pairs[:LAG_PAIRS]
    likely = [stretch.lag for stretch in lengths.stretches]
    for lag in dict.fromkeys([*likely, *sorted(SEARCHED_LAGS, key=abs)]):
        sides = zip(pairs[max(-lag, 0) :], pairs[max(lag, 0) :], strict=False)
        moved = [SentencePair(one.source, other.target) for one, other in sides]
        learned = TrainingWords(text._replace(lines=np.arange(1, len(moved) + 1), pairs=moved, total=len(moved)))
        if learned.has_lexicon and learned.held_out.relation >= TELLS_APART:
            scored = ScoredPairs(learned.lexicon, text, _runs(len(text.pairs), READ_OF_TEXT))
            return _shifted(text, _confirmed(lengths, scored, learned.lexicon))
    if lengths.lengths_agree and not lengths.is_shifted:
        return []
    problem = f"neither lengths nor words of lines agree, also not up to {SEARCHED_LAGS[-1]} lines away"
    return [Finding("unrelated", f"nothing shows that the sides of {text.called} are translations: {problem}")]


def _forms(text: PairText) -> tuple[Form, Form]:
    source, target = (_form([pair[side] for pair in text.pairs[:READ_FOR_FORM]]) for side in (0, 1))
    return source, target


def _form(lines: Sequence[str]) -> Form:
    joined = "\n".join(lines)
    letters = _UNICAMERAL.sub("", joined)
    number_upper = sum(map(str.isupper, letters))
    cased = number_upper + sum(map(str.islower, letters))
    upper, is_lower, is_upper = number_upper / max(cased, 1), None, None
    if cased >= max(MIN_CASED, sum(map(str.isalpha, joined)) / 2) and not LOWER <= upper < CASED:
        is_lower, is_upper = upper < LOWER, upper >= UPPER
    spaces = [space for line in lines for space in _MARK.findall(line)]
    spaced = sum(map(bool, spaces)) / max(len(spaces), 1)
    is_tokenized = None
    if len(spaces) >= MIN_MARKS and not 1 - SPACED_MARKS < spaced < SPACED_MARKS:
        is_tokenized = spaced >= SPACED_MARKS
    pieced = sum(bool(_PIECES.search(line)) for line in lines)
    return Form(is_lower, is_upper, is_tokenized, pieced >= PIECED * len(lines) if len(lines) >= MIN_PIECED else None)


def _other_forms(text: PairText, training: TrainingWords) -> list[Finding]:
    findings = []
    for name, trained_name, other, forms in zip(
        text.names, training.text.names, _forms(text), training.forms, strict=True
    ):
        for is_form, trained, description in zip(other, forms, Form(True, True, True, True).names, strict=True):
            if is_form is not None and trained is not None and is_form != trained:
                first, second = (name, trained_name) if is_form else (trained_name, name)
                findings.append(Finding("form", f"{first} is {description}, and {second} is not"))
    return findings


def _listed(lines: Sequence[int]) -> str:
    return ", ".join(f"{line:,}" for line in lines)
