"""Counts by kind of fault and verdict, kept in a file."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

from judges import NOT_STRUCK, Verdict
from subjects import ROOT


class Campaign:
    """Counts by kind of fault and verdict, kept in a file after each."""

    def __init__(self, seed: int, output: Path | None) -> None:
        self.seed, self.output = seed, output
        self.counts: Counter[tuple[str, str]] = Counter()
        self.bad: list[list[str]] = []
        self.all: list[list[str]] = []
        self.began = time.monotonic()
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        self.commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def note(self, kind: str, fault: str, verdict: Verdict) -> None:
        """Counts a verdict; a bad one is printed at once."""
        self.counts[kind, verdict.kind] += 1
        if not kind.startswith("bad input"):
            self.all.append([kind, fault, *verdict])
        if not verdict.is_good:
            self.bad.append([kind, fault, *verdict])
            print(f"{verdict.kind}: {kind}, {fault}: {verdict.detail}", flush=True)
        if self.output:
            hours = round((time.monotonic() - self.began) / 3600, 3)
            found = {"seed": self.seed, "commit": self.commit, "hours": hours, "bad": self.bad, "table": self.table()}
            found["faults"] = self.all
            self.output.write_text(json.dumps(found, indent=2))

    def table(self) -> str:
        """The counts as Markdown; what was not struck is no fault, and not in the sum."""
        verdicts = ("resumed", "refused", "traceback", "wrong", "hang", "lost")
        lines = [f"| fault | all | {' | '.join(verdicts)} | {NOT_STRUCK} |", f"|---|{'---|' * (len(verdicts) + 2)}"]
        for kind in sorted({kind for kind, _ in self.counts}):
            found = [self.counts[kind, verdict] for verdict in (*verdicts, NOT_STRUCK)]
            lines.append(f"| {kind} | {sum(found[:-1])} | {' | '.join(map(str, found))} |")
        totals = [
            sum(n for (_, each), n in self.counts.items() if each == verdict) for verdict in (*verdicts, NOT_STRUCK)
        ]
        return "\n".join([*lines, f"| all | {sum(totals[:-1])} | {' | '.join(map(str, totals))} |"])
