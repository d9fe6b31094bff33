"""Does a run survive what happens to it? Faults at random, by seed, and after each the same command again.

    python tests/faults/run.py --hours=8 --seed=0
    python tests/faults/run.py --faults=20 --inputs=100                      (a small slice)
    python tests/faults/run.py --inputs=0 --kinds "two processes" sweep      (of some kinds)

Faults: see ``kinds.py``. After each the same command must go on to the same parameters and metrics, bit for bit, or refuse in a
sentence. Bad inputs: a table, and texts by chance. Prints counts by kind; exit status 1 when one verdict is bad.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

from inputs import input_verdicts
from judges import NOT_STRUCK, Verdict
from kinds import SECONDS_TO_END, Fault, kinds
from processes import ROOT, Hanging
from subjects import SUBJECTS


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


def plan(rng: random.Random, faults: Mapping[str, Mapping[str, Fault]]) -> Iterator[tuple[str, str]]:
    """Endless: kinds in turn, and of each all its faults in random order before one comes again."""

    def shuffled(names: list[str]) -> Iterator[str]:
        while True:
            rng.shuffle(names)
            yield from names

    each = {kind: shuffled(list(named)) for kind, named in faults.items()}
    for kind in itertools.cycle(each):
        yield kind, next(each[kind])


def struck(fault: Fault, subject: str, root: Path, rng: random.Random) -> Verdict:
    """The verdict of one fault."""
    try:
        return fault(subject, root, rng)
    except Hanging:
        return Verdict("hang")


def main() -> int:
    """Runs the campaign; 1 when a verdict is bad."""
    every = list(kinds(SECONDS_TO_END))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=10**9)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--kinds", nargs="*", default=every, choices=every)
    parser.add_argument("--subjects", nargs="*", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--seconds_to_end", type=float, default=SECONDS_TO_END, help="allowed after SIGTERM")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--folder", type=Path, help="keeps the undisturbed runs for the next campaign of this commit")
    arguments = parser.parse_args()
    campaign = Campaign(arguments.seed, arguments.output)
    rng, deadline = random.Random(arguments.seed), time.monotonic() + 3600 * arguments.hours
    known = kinds(arguments.seconds_to_end)
    chosen = {kind: known[kind] for kind in arguments.kinds}
    with nullcontext(arguments.folder) if arguments.folder else tempfile.TemporaryDirectory() as folder:
        root = Path(folder).absolute()
        for kind, verdict in input_verdicts(root / "inputs", arguments.inputs, arguments.seed):
            campaign.note(f"bad input: {kind}", kind, verdict)
        for kind, name in itertools.islice(plan(rng, chosen), arguments.faults):
            if time.monotonic() > deadline:
                break
            subject = rng.choice(arguments.subjects)
            verdict = struck(chosen[kind][name], subject, root, rng)
            campaign.note(kind, f"{subject}, {name}", verdict)
    print(campaign.table())
    return int(bool(campaign.bad))


if __name__ == "__main__":
    sys.exit(main())
