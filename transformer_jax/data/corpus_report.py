"""The table of a check of text: faults, how many lines have them, and the first of these."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

EXAMPLES, EXAMPLE_CHARACTERS = 3, 80


class Finding(NamedTuple):
    """The number of lines of a side, or of pairs, with a fault, the number of all, and the first ones with file and line."""

    side: str
    fault: str
    lines: int
    of: int
    examples: list[str]
    is_serious: bool = False


class CorpusReport(NamedTuple):
    """The findings on a text, and remarks that hold for all of it."""

    title: str
    remarks: list[str]
    findings: list[Finding]

    @property
    def is_serious(self) -> bool:
        """Whether a training on the text makes no sense, or cannot read it."""
        return any(found.lines for found in self.findings if found.is_serious)

    def text(self) -> str:
        """A table of lines, share and fault, below each fault its first lines; then the faults that were not found."""
        rows = [self.title, *(f"  {remark}" for remark in self.remarks), "   lines    share"]
        for side, fault, lines, of, examples, is_serious in self.findings:
            if lines:
                name = f"{side}: {fault}" if side else fault
                rows.append(f"{lines:>8,}  {lines / of:>7.2%}  {'SERIOUS: ' * is_serious}{name}")
                rows += [f"{'':21}{example}" for example in examples]
        found = {each.fault for each in self.findings if each.lines}
        missing = dict.fromkeys(each.fault for each in self.findings if each.fault not in found)
        return "\n".join([*rows, f"not found: {'; '.join(missing)}"])


class Faults:
    """Counts lines by side and fault, and keeps the first of each."""

    def __init__(self) -> None:
        self._lines: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], list[str]] = defaultdict(list)

    def count(self, side: str, fault: str, lines: int = 1) -> None:
        self._lines[side, fault] += lines

    def show(self, side: str, fault: str, where: str, text: str = "") -> None:
        if len(self._examples[side, fault]) < EXAMPLES:
            shown = "".join(
                each if each.isprintable() else f"<U+{ord(each):04X}>" for each in text[:EXAMPLE_CHARACTERS]
            )
            shown += "..." * (len(text) > EXAMPLE_CHARACTERS)
            self._examples[side, fault].append(f"{where}  {shown}".rstrip())

    def add(self, side: str, fault: str, where: str, text: str = "") -> None:
        self.count(side, fault)
        self.show(side, fault, where, text)

    def findings(
        self, sides: Iterable[str], faults: Iterable[str], of: int, *, is_serious: bool = False
    ) -> list[Finding]:
        keys = [(side, fault) for fault in faults for side in sides]
        return [Finding(*key, self._lines[key], of, self._examples[key], is_serious) for key in keys]
