"""Faults of a text or a parallel corpus: counts, shares, and examples with file and line.

Every line is compared with the scripts, languages and length ratio of a sample of the text.
"""

import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise, takewhile, zip_longest
from pathlib import Path

import numpy as np

from transformer_jax.config import ConfigError, DataConfig, DataError, TokenizerConfig
from transformer_jax.config.languages import base_language, language_of_file
from transformer_jax.data.corpus_statistics import (
    FULL_WIDTH,
    ZERO_WIDTH,
    CorpusSample,
    SideText,
    sample_of,
    vocabulary_of,
)
from transformer_jax.data.pair_encoding import MAX_LINE_BYTES, encoded_sides, reasons_to_drop, training_filters
from transformer_jax.data.parallel_text import named_files, tab_error
from transformer_jax.data.scripts import script_of
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.text_files import (
    plain_name,
    plain_or_compressed,
    raw_lines,
    require_one_file,
    says_nothing,
    sentence_of_line,
)
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.tokenizer_training import train_supported
from transformer_jax.tools.data_check.line_languages import can_identify, foreign_language, usual_languages
from transformer_jax.tools.data_check.line_shift import GROUP, LineShift, Stretch, line_shift
from transformer_jax.tools.data_check.pair_examination import (
    READ_THOROUGHLY,
    Finding,
    PairText,
    TrainingWords,
    carriage_returns,
    examine,
)

# Examples of a fault, and characters of an example.
EXAMPLES = 3
EXAMPLE_CHARACTERS = 80
# Fewer pairs get a remark: translation needs more, or a pretrained model.
ENOUGH_PAIRS = 5000
# Lines that are read at once.
CHUNK = 8192
# Minimum number of lines of a part that is searched for shifts by itself.
SHIFT_LINES = 200_000
# Characters.
LONG_LINE = 1000
# A larger ratio of the lengths of the sides, relative to the median, is a fault if the longer side
# has RATIO_CHARACTERS.
RATIO = 3.0
RATIO_CHARACTERS = 30
# Boilerplate occurs at least BOILERPLATE times, and once in BOILERPLATE_SHARE lines.
BOILERPLATE = 10
BOILERPLATE_SHARE = 2000
JAPANESE = frozenset(("HAN", "HIRAGANA", "KATAKANA"))
MIN_LETTERS = 3

UNREADABLE = "lines that are not UTF-8, have NUL bytes or not one tab"
MORE = "lines that the other side does not have"
SHIFTED = "lines shifted by one to three lines against the other side"
REVERSED, MISMATCHED = "sides in the reverse order, estimated", "words that do not translate each other, estimated"
ESTIMATED = {"reversed": REVERSED, "mismatched": MISMATCHED}
SERIOUS = (UNREADABLE, MORE, SHIFTED)
EMPTY, LONG = "empty lines", f"lines above {LONG_LINE:,} characters"
DECOMPOSED = "not in Unicode's normal form NFC: equal letters may be different characters"
SCRIPT, LANGUAGE = "letters of another script", "in the language of the other side"
THIRD_LANGUAGE = "in a third language"
FREQUENT, TWICE = f"boilerplate: the same line {BOILERPLATE} times or more", "duplicates of an earlier line or pair"
COPIES, LENGTHS = "copies: target is source", f"one side {RATIO:g} times longer than is usual"
FILTERED = "of the sample, training would leave out: "
MIN_PAIRS_FOR_SHIFT = 500
SERIOUS_KINDS = frozenset(("shifted", "unrelated"))
# After and before joiners, which spell words of Persian or Malayalam, and emoji.
_JOINED = r"[^\x00-\x7f\s\u2000-\u206f]"
PATTERNS = {
    "control characters or U+FFFD": re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd]"),
    "zero-width characters": re.compile(rf"(?!(?<={_JOINED})(?:\u200d|\u200c(?={_JOINED}))){ZERO_WIDTH.pattern}"),
    "full-width characters (NFKC would make them ASCII)": FULL_WIDTH,
    "HTML escapes or tags": re.compile(
        r"&(?:[a-zA-Z]{2,8}|#\d{2,6});|</?(?:br|p|b|i|a|div|span|td|tr|li|ul|font)\b[^<>]*>"
    ),
    "UTF-8 read as Latin-1": re.compile("[\u00c2\u00c3][\u0080-\u00bf]"),
}
_ANY_PATTERN = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in PATTERNS.values()))


Rows = Callable[[], Iterator[tuple[int, tuple[str, ...]]]]
"""Starts a pass over the readable lines: their numbers (from 1), and the text of each side."""


class CorpusReport:
    """Faults of a text: numbers of lines or pairs, and the first of them with file and line."""

    def __init__(self) -> None:
        self.title = ""
        self.remarks: list[str] = []
        self.is_serious = False
        """Whether the text cannot be read, or is useless for training."""
        self._lines: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], list[str]] = defaultdict(list)

    def count(self, side: str, fault: str, lines: int = 1) -> None:
        """Count lines of a side, or pairs if ``side`` is empty."""
        self._lines[side, fault] += lines
        self.is_serious |= lines > 0 and fault in SERIOUS

    def show(self, side: str, fault: str, where: str, text: str = "") -> None:
        """Keep an example unless there are enough."""
        if len(self._examples[side, fault]) < EXAMPLES:
            shown = "".join(
                letter if letter.isprintable() else f"<U+{ord(letter):04X}>" for letter in text[:EXAMPLE_CHARACTERS]
            )
            shown += "..." * (len(text) > EXAMPLE_CHARACTERS)
            self._examples[side, fault].append(f"{where}  {shown}".rstrip())

    def add(self, side: str, fault: str, where: str, text: str = "") -> None:
        """Count a line, and keep it as an example unless there are enough."""
        self.count(side, fault)
        self.show(side, fault, where, text)

    def table(self, names: Sequence[str], faults: Mapping[str, int]) -> str:
        """Return a table of lines, share and fault with examples, and the number of other faults.

        ``faults``: in the order of the table, with the number of lines that were searched.
        """
        rows, missing = [], 0
        for fault, of in faults.items():
            keys = [(side, fault) for side in ("", *names) if self._lines[side, fault]]
            missing += not keys and not fault.startswith(FILTERED)
            for side, _ in keys:
                lines, name = self._lines[side, fault], f"{side}: {fault}" if side else fault
                rows.append(f"{lines:>8,}  {lines / of:>7.2%}  {'SERIOUS: ' * (fault in SERIOUS)}{name}")
                rows += [f"{'':21}{example}" for example in self._examples[side, fault]]
        head = [self.title, *(f"  {remark}" for remark in self.remarks), *["   lines    share"][: len(rows)]]
        return "\n".join([*head, *rows, f"  not found: {missing} {'other ' * bool(rows)}faults, see data check --help"])


def check_text(
    files: Sequence[Path], data: DataConfig, tokenizer: TokenizerConfig
) -> tuple[str, bool, PairText | None]:
    """Check a text, two parallel files, or a .tsv of pairs.

    Args:
        files: The text, or its two sides.
        data: Settings of the filters of training.
        tokenizer: Settings of the vocabulary that counts tokens for the filters.

    Returns:
        A table of faults, whether the text is useless for training, and a sample of its pairs.

    Raises:
        DataError: Nothing can be read.
    """
    is_table = plain_name(files[0]).endswith(".tsv")
    names = [f"{files[0].name}, column {column}" for column in (1, 2)] if is_table else [file.name for file in files]
    if len(set(names)) < len(names):
        names = list(map(str, files))
    report, total, first = CorpusReport(), 0, ""
    for number, texts in enumerate(_texts(files, is_table), start=1):
        total = number
        for name, other, text in zip(names, reversed(names), texts, strict=True):
            if text is None:
                report.add("", MORE, f"{other}:{number}")
            elif isinstance(text, DataError):
                first = first or str(text)
                report.add("", UNREADABLE, f"{name}:{number}", str(text).partition(": ")[2])

    def readable() -> Iterator[tuple[int, tuple[str, ...]]]:
        for number, texts in enumerate(_texts(files, is_table), start=1):
            if all(isinstance(text, str) for text in texts):
                yield number, tuple(map(str, texts))

    # Line numbers of the readable pairs.
    lines: list[int] = []

    def numbered() -> Iterator[SentencePair]:
        for number, texts in readable():
            lines.append(number)
            yield SentencePair(texts[0], texts[-1])

    sample = sample_of(numbered(), total)
    sample = sample._replace(lines=[lines[index] for index in sample.lines])
    if not sample.pairs:
        raise DataError(f"no line can be read: {first}" if first else f"{files[0]}: the file is empty")
    report.title = f"{' and '.join(map(str, files))}: {total:,} lines"
    for name, side in zip(names, (sample.source, sample.target), strict=False):
        scripts = ", ".join(f"{script.title()} {share:.0%}" for script, share in side.scripts.items() if share >= 0.01)
        report.remarks.append(f"{name}: {len(side.characters):,} distinct characters; {scripts or 'no letters'}")
    languages = _languages(report, names, sample)
    shift = _check_lines(report, names, sample, languages, readable)
    if len(names) == 1:
        _add(report, carriage_returns(names[0], np.array(sample.lines), [pair.source for pair in sample.pairs]))
    faults = [UNREADABLE, EMPTY, LONG, SCRIPT, *[THIRD_LANGUAGE] * any(languages)]
    faults += [DECOMPOSED, *PATTERNS, FREQUENT, TWICE]
    if len(names) == 1:
        return report.table(names, dict.fromkeys(faults, total)), report.is_serious, None
    ends = [stretch.line for stretch in shift.stretches[1:]] + [total + 1]
    report.count("", SHIFTED, sum(end - first for (first, lag), end in zip(shift.stretches, ends, strict=True) if lag))
    for description in shift.descriptions(*names):
        report.show("", SHIFTED, description)
    pair_text = PairText("the text", (names[0], names[1]), total, np.array(sample.lines), sample.pairs)
    examined = examine(pair_text, TrainingWords(pair_text, READ_THOROUGHLY), thorough=True)
    kinds = [finding.kind for finding in examined.findings]
    if not shift.lengths_agree and len(sample.pairs) >= MIN_PAIRS_FOR_SHIFT and not kinds:
        report.remarks.append("no sign that the sides are translations: the lengths of pairs do not agree")
    # The table has these faults with their lines.
    in_table = {"empty", "copies", "duplicates", *ESTIMATED, *["shifted"] * shift.is_shifted}
    pair_of = dict(zip(sample.lines, sample.pairs, strict=True))
    for finding in examined.findings:
        if fault := ESTIMATED.get(finding.kind):
            report.count("", fault, round(finding.share * total))
            for number in finding.lines:
                report.show("", fault, f"{names[0]}:{number}", " | ".join(pair_of[number]))
    _add(report, [finding for finding in examined.findings if finding.is_serious or finding.kind not in in_table])
    report.remarks += examined.notes + [f"not checked: {reason}" for reason in examined.unchecked.values()]
    try:
        filtered = _check_filters(report, sample, names, data, tokenizer)
    except (ConfigError, DataError) as error:
        filtered, report.is_serious = [], True
        report.remarks.append(f"SERIOUS: no vocabulary can be learned from the sample, to count the filters ({error})")
    checks = [SHIFTED] * (len(sample.pairs) >= GROUP)
    checks += [fault for kind, fault in ESTIMATED.items() if kind not in examined.unchecked]
    faults = [UNREADABLE, MORE, *checks, *faults[1:-1], *[LANGUAGE] * any(languages), COPIES, LENGTHS, TWICE]
    searched = dict.fromkeys(faults, total) | dict.fromkeys(filtered, len(sample.pairs))
    return report.table(names, searched), report.is_serious, pair_text


def _add(report: CorpusReport, findings: Iterable[Finding]) -> None:
    """Add remarks. Shifts and sides without a relation are serious too."""
    for finding in findings:
        is_serious = finding.is_serious or finding.kind in SERIOUS_KINDS
        report.is_serious |= is_serious
        report.remarks.append(f"{'SERIOUS' if is_serious else 'WARNING'}: {finding.text}")


def remarks_on_size(texts: Sequence[PairText]) -> list[str]:
    """Return a remark if the largest text has few pairs."""
    pairs = max((text.total for text in texts), default=ENOUGH_PAIRS)
    few = f"{pairs:,} pairs are few to train on: translation needs {ENOUGH_PAIRS:,} or more, or a pretrained model"
    return [few] * (pairs < ENOUGH_PAIRS)


def compare_texts(texts: Sequence[PairText]) -> tuple[list[str], bool]:
    """Compare texts with the largest one, and return remarks, and whether one is serious."""
    largest = max(texts, key=lambda text: text.total)
    words, report = TrainingWords(largest), CorpusReport()
    for text in texts:
        if text is not largest:
            called = f"{text.names[0]} and {text.names[1]}"
            alone = {finding.text for finding in examine(text._replace(called=called)).findings}
            findings = examine(text._replace(called=called), words).findings
            _add(report, [finding for finding in findings if finding.text not in alone])
    heading = f"compared with {largest.names[0]} and {largest.names[1]}:"
    return [heading, *(f"  {remark}" for remark in report.remarks or ["nothing differs"])], report.is_serious


def _texts(files: Sequence[Path], is_table: bool) -> Iterator[tuple[str | DataError | None, ...]]:
    """Yield the sides of every line: a DataError if unreadable, None after the end of a file."""
    if not is_table:
        # The beginning of a longer line, which training leaves out.
        yield from zip_longest(*(_decoded(file, MAX_LINE_BYTES + 1) for file in files))
        return
    for number, line in enumerate(_decoded(files[0]), start=1):
        if isinstance(line, DataError):
            yield line, ""
        elif line.count("\t") != 1:
            yield tab_error(files[0], number, line), ""
        else:
            yield tuple(side[: MAX_LINE_BYTES + 1] for side in line.split("\t"))


def _decoded(path: Path, length: int | None = None) -> Iterator[str | DataError]:
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield sentence_of_line(raw.removesuffix(b"\n"), str(path), number)[:length]
        except DataError as error:
            yield error


def _languages(report: CorpusReport, names: Sequence[str], sample: CorpusSample) -> list[list[str]]:
    """Return the usual languages of each side, except the main one of the other side."""
    if not can_identify():
        report.remarks.append("not checked: the language of lines, which needs py3langid; pip install py3langid")
        return [[] for _ in names]
    by_side = [usual_languages(texts) for _, texts in zip(names, zip(*sample.pairs, strict=True), strict=False)]
    for name, shares in zip(names, by_side, strict=True):
        said = ", ".join(f"{language} {share:.0%}" for language, share in shares.items())
        report.remarks.append(
            f"{name}: {f'languages {said}' if said else 'not checked: no language of lines is recognized'}"
        )
    main = [next(iter(shares), "") for shares in by_side]
    languages_of_names = [base_language(language_of_file(name)) for name in names]
    if len(set(languages_of_names)) == 2 and main == languages_of_names[::-1]:
        problem = f"{names[0]} is in {main[0]}, and {names[1]} in {main[1]}: the files have each other's names"
        _add(report, [Finding("swapped", problem, is_serious=True)])
    return [
        [language for language in shares if language == main[side] or language not in main]
        for side, shares in enumerate(by_side)
    ]


def _check_lines(
    report: CorpusReport, names: Sequence[str], sample: CorpusSample, languages: Sequence[Sequence[str]], rows: Rows
) -> LineShift:
    """Compare every line and pair with the sample, and return the lags of the lines."""
    scripts = [_usual_scripts(side) for side in (sample.source, sample.target)]
    usual = float(np.median([(len(pair.source) + 1) / (len(pair.target) + 1) for pair in sample.pairs]))
    hashes, numbers = [array("q") for _ in range(len(names) + 1)], array("q")
    lengths = array("q")
    stream = rows()
    while chunk := list(islice(stream, CHUNK)):
        lines = [number for number, _ in chunk]
        numbers.extend(lines)
        hashes[-1].extend(hash(row) for _, row in chunk)
        for side, name in enumerate(names):
            texts = [row[side] for _, row in chunk]
            hashes[side].extend(map(hash, texts))
            for number, text in zip(lines, texts, strict=True):
                _check_line(report, name, number, text, scripts[side])
            other = next(iter(languages[1 - side]), "") if len(names) == 2 else ""
            for number, row in chunk if languages[side] else ():
                if len(set(row)) == len(names) and (language := foreign_language(row[side], languages[side], other)):
                    fault = LANGUAGE if language == other else THIRD_LANGUAGE
                    report.add(name, fault, f"{name}:{number}  {language}", row[side])
        if len(names) == 2:
            pairs = [SentencePair(*row) for _, row in chunk]
            for number, pair in zip(lines, pairs, strict=True):
                _check_pair(report, f"{names[0]}:{number}", pair, usual)
            lengths.extend(len(text) for pair in pairs for text in pair)
    _check_repeated(report, names, np.array(numbers), [np.array(values) for values in hashes], rows)
    # The last part is not shorter than the others.
    bounds = [*range(0, max(len(lengths) // 2 - SHIFT_LINES + 1, 1), SHIFT_LINES), len(lengths) // 2]
    of_pairs = np.array(lengths).reshape(-1, 2)
    parts = [line_shift(np.array(numbers[a:b]) - 1, of_pairs[a:b]) for a, b in pairwise(bounds)]
    shift = _joined(parts)
    unknown = ", ".join(f"{part.stretches[0].line:,}" for part in parts if not part.lengths_agree)
    if shift.lengths_agree and unknown:
        where = f"in {SHIFT_LINES:,} lines or more from line {unknown}"
        report.remarks.append(f"no sign that the sides are translations {where}: the lengths of pairs do not agree")
    return shift


def _check_line(report: CorpusReport, name: str, number: int, text: str, scripts: frozenset[str]) -> None:
    where = f"{name}:{number}"
    if says_nothing(text):
        report.add(name, EMPTY, where)
    if len(text) > LONG_LINE:
        report.add(name, LONG, where, text)
    if not (text.isascii() and "LATIN" in scripts):
        letters = [script_of(letter) for letter in text if letter.isalpha()]
        if len(letters) >= MIN_LETTERS and 2 * sum(script in scripts for script in letters) < len(letters):
            report.add(name, SCRIPT, where, text)
    if not unicodedata.is_normalized("NFC", text):
        report.add(name, DECOMPOSED, where, text)
    if _ANY_PATTERN.search(text):
        for fault, pattern in PATTERNS.items():
            if match := pattern.search(text):
                start = max(match.start() - EXAMPLE_CHARACTERS // 2, 0)
                report.add(name, fault, where, "..." * (start > 0) + text[start:])


def _check_pair(report: CorpusReport, where: str, pair: SentencePair, usual: float) -> None:
    source, target = map(str.strip, pair)
    if says_nothing(source) or says_nothing(target):
        return
    if source == target:
        report.add("", COPIES, where, source)
    ratio = (len(source) + 1) / (len(target) + 1) / usual
    if max(len(source), len(target)) >= RATIO_CHARACTERS and not 1 / RATIO <= ratio <= RATIO:
        report.add("", LENGTHS, where, f"{source[:30]} | {target}")


def _check_repeated(
    report: CorpusReport, names: Sequence[str], numbers: np.ndarray, hashes: Sequence[np.ndarray], rows: Rows
) -> None:
    """Count boilerplate on each side, and pairs that repeat an earlier one."""
    examples: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
    for side, name in enumerate(names):
        _, first, counts = np.unique(hashes[side], return_index=True, return_counts=True)
        is_frequent = counts >= max(BOILERPLATE, len(numbers) / BOILERPLATE_SHARE)
        report.count(name, FREQUENT, int(counts[is_frequent].sum()))
        for index in sorted(np.flatnonzero(is_frequent), key=lambda at: -counts[at])[:EXAMPLES]:
            examples[int(numbers[first[index]])].append((name, FREQUENT, side))
    _, first = np.unique(hashes[-1], return_index=True)
    is_later = np.ones(len(numbers), bool)
    is_later[first] = False
    report.count("", TWICE, int(is_later.sum()))
    for number in numbers[is_later][:EXAMPLES].tolist():
        examples[number].append(("", TWICE, 0))
    for number, texts in takewhile(lambda row: row[0] <= max(examples, default=0), rows()):
        for name, fault, side in examples.get(number, ()):
            report.show(name, fault, f"{names[side]}:{number}", texts[side])


def _usual_scripts(side: SideText) -> frozenset[str]:
    scripts = frozenset(side.main_scripts)
    is_japanese = any(side.scripts.get(kana, 0) >= 0.02 for kana in ("HIRAGANA", "KATAKANA"))
    return scripts | JAPANESE if is_japanese else scripts


def _joined(parts: Sequence[LineShift]) -> LineShift:
    """Join the shifts of consecutive parts of a corpus."""
    stretches: list[Stretch] = []
    for stretch in chain.from_iterable(part.stretches for part in parts):
        if not stretches or stretches[-1].lag != stretch.lag:
            stretches.append(stretch)
    return LineShift(stretches, max((part.correlation for part in parts), default=0.0))


def _check_filters(
    report: CorpusReport, sample: CorpusSample, names: Sequence[str], data: DataConfig, tokenizer: TokenizerConfig
) -> list[str]:
    """Count, in the report, the pairs of the sample that the filters of training remove.

    A vocabulary learned from the sample counts tokens.
    """
    learned = []
    for side, texts in zip((sample.source, sample.target), zip(*sample.pairs, strict=True), strict=True):
        vocabulary = vocabulary_of(side, side, tokenizer.kind, tokenizer.vocabulary_size).settings
        config = replace(tokenizer, vocabulary_size=vocabulary["tokenizer.vocabulary_size"])
        learned.append(train_supported(config, texts))
    sides = encoded_sides(sample.pairs, TokenizerPair(*learned), data)
    for index, reason in sorted(reasons_to_drop(data, sample.pairs, sides).items()):
        report.add("", FILTERED + reason, f"{names[0]}:{sample.lines[index]}", sample.pairs[index].source)
    return [FILTERED + reason for reason in training_filters(data)]


def files_of_texts(names: Sequence[str]) -> list[list[Path]]:
    """Return one file for each text, or the two sides of a pair."""
    texts: list[list[Path]] = []
    alone: list[Path] = []
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.is_file())
            groups = [group for group in _by_name(files) if len(group) == 2 or _is_one_text(group[0])]
            if not groups:
                problem = "has no pair of files such as train.en and train.de, no .tsv and no .txt"
                raise ConfigError("data check", f"{path} {problem}")
            texts += groups
        elif re.search("[,{]", name):
            texts.append(list(named_files(name, "data check")))
        elif file := path if path.is_file() else plain_or_compressed(path):
            alone.append(file)
        else:
            raise ConfigError("data check", f"{path} is neither a file nor a folder")
    languages = {language_of_file(path.name) or path.name for path in alone}
    is_pair = len(alone) == len(languages) == 2 and not any(map(_is_one_text, alone))
    return [*texts, *([alone] if is_pair else _by_name(alone))]


def remarks_on_pairs(texts: Sequence[Sequence[Path]]) -> list[str]:
    """Return remarks on single texts that look like a pair, such as a.en.txt and a.de.txt."""
    groups: dict[Path, list[Path]] = defaultdict(list)
    for file in (files[0] for files in texts if len(files) == 1 and plain_name(files[0]).endswith(".txt")):
        name = plain_name(file).removesuffix(".txt")
        if language_of_file(name):
            groups[file.with_name(name.rpartition(".")[0])].append(file)
    return [
        f"{two[0]} and {two[1].name} were checked one by one; to check them as a pair: data check {two[0]},{two[1]}"
        for two in groups.values()
        if len(two) == 2
    ]


def _is_one_text(path: Path) -> bool:
    return plain_name(path).endswith((".tsv", ".txt"))


def _by_name(paths: Sequence[Path]) -> list[list[Path]]:
    """Group files. Two names that differ only in the language at their end are a pair."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        name = plain_name(path)
        common = name if _is_one_text(path) else name.rpartition(".")[0] or path.name
        groups[str(path.with_name(common))].append(path)
    for common, files in groups.items():
        for name in set(map(plain_name, files)):
            require_one_file([file for file in files if plain_name(file) == name])
        if len(files) > 2:
            names = ", ".join(file.name for file in files)
            raise ConfigError("data check", f"{common} has {len(files)} languages, {names}", "name two files")
    return list(groups.values())
