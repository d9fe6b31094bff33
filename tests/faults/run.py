"""Does a run survive what happens to it? Faults at random, by seed, and after each the same command
again.

    python tests/faults/run.py --hours=8 --seed=0 > faults.txt
    python tests/faults/run.py --faults=20 --inputs=100                      (a small slice)
    python tests/faults/run.py --inputs=0 --kinds "two processes" sweep      (of some kinds)

Faults: see ``kinds.py``. After each the same command must go on to the same parameters and metrics,
bit for bit, or refuse in a sentence. Bad inputs: a table, and texts by chance. Prints every
verdict, and a table of their counts by kind; exit status 1 when one verdict is bad.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from inputs import input_verdicts
from judges import NOT_STRUCK, Verdict
from kinds import SECONDS_TO_END, Fault, kinds
from processes import Hanging
from subjects import SUBJECTS

VERDICTS = ("resumed", "refused", "traceback", "wrong", "hang", "lost", NOT_STRUCK)


def table_of(counts: Counter[tuple[str, str]]) -> str:
    """The counts as Markdown; what was not struck is no fault, and not in the sum."""
    kinds = sorted({kind for kind, _ in counts})
    rows = [[kind, *(counts[kind, verdict] for verdict in VERDICTS)] for kind in kinds]
    rows.append(["all", *(sum(counts[kind, verdict] for kind in kinds) for verdict in VERDICTS)])
    lines = [["fault", "all", *VERDICTS], ["---"] * (len(VERDICTS) + 2)]
    lines += [[kind, sum(numbers[:-1]), *numbers] for kind, *numbers in rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def shuffled(names: list[str], rng: random.Random) -> Iterator[str]:
    """Endless: all in random order before one comes again."""
    while True:
        yield from rng.sample(names, len(names))


def verdict_of(fault: Fault, subject: str, root: Path, rng: random.Random) -> Verdict:
    """The verdict of one fault."""
    try:
        return fault(subject, root, rng)
    except Hanging as hanging:
        return Verdict("hang", str(hanging))


def main() -> int:
    """Runs the campaign; 1 when a verdict is bad."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=10**9)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--kinds", nargs="*", default=list(kinds(0)), choices=list(kinds(0)))
    parser.add_argument("--seconds_to_end", type=float, default=SECONDS_TO_END, help="allowed after SIGTERM")
    arguments = parser.parse_args()
    rng, deadline = random.Random(arguments.seed), time.monotonic() + 3600 * arguments.hours
    counts: Counter[tuple[str, str]] = Counter()
    are_good = True

    def note(kind: str, fault: str, verdict: Verdict) -> bool:
        counts[kind, verdict.kind] += 1
        print(f"{verdict.kind}: {kind}, {fault}: {verdict.detail}", flush=True)
        return verdict.is_good

    with tempfile.TemporaryDirectory() as folder:
        for kind, verdict in input_verdicts(Path(folder, "inputs"), arguments.inputs, arguments.seed):
            are_good &= note(f"bad input: {kind}", "", verdict)
        faults = {kind: named for kind, named in kinds(arguments.seconds_to_end).items() if kind in arguments.kinds}
        names = {kind: shuffled(list(named), rng) for kind, named in faults.items()}
        for kind in itertools.islice(itertools.cycle(faults), arguments.faults):
            if time.monotonic() > deadline:
                break
            name, subject = next(names[kind]), rng.choice(list(SUBJECTS))
            verdict = verdict_of(faults[kind][name], subject, Path(folder), rng)
            are_good &= note(kind, f"{subject}, {name}", verdict)
    print(table_of(counts))
    return int(not are_good)


if __name__ == "__main__":
    sys.exit(main())
