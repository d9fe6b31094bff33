"""Does a run survive what happens to it? Faults at random, by seed, and after each the same command again.

    python experiments/faults/run.py --hours=8 --seed=0
    python experiments/faults/run.py --faults=20 --inputs=100      (a small slice)

Faults: files of every kind damaged, and processes killed, stopped, asked to end, or without room on the disk. After each the
same command must go on to the same parameters and metrics, bit for bit, or refuse in a sentence. Bad inputs: a table, and
texts by chance. Prints counts by kind; exit status 1 when one verdict is bad.
"""

import argparse
import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from damage import DAMAGES, FILES, copy_of, damage_one
from inputs import input_verdicts
from judges import Verdict, judge
from one_command import run_command_here
from subjects import SUBJECTS, UPDATES, start, write_recipe

SECONDS = 600
"""Beyond it a command counts as hanging."""
FULL_DISK = ("bash", "-c", 'ulimit -f 8; exec "$@"', "limited")
PROCESS_FAULTS = {
    "kill -9": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGINT": signal.SIGINT,
    "STOP and CONT": signal.SIGSTOP,
    "full disk": None,
}


def undisturbed_run(subject: str, folder: Path) -> Path:
    """The run that nothing happens to, and a copy of it as of two thirds, with its newest checkpoints gone."""
    recipe = write_recipe(subject, folder)
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={folder / 'run'}"])
    if status:
        raise SystemExit(f"{subject}: the undisturbed run failed: {output}")
    half = copy_of(folder, folder.with_name(f"{subject}-half"))
    for checkpoint in (half / "run" / "checkpoints").iterdir():
        if int(checkpoint.name) > UPDATES * 2 // 3:
            subprocess.run(["rm", "-r", str(checkpoint)], check=True)
    return half


def damaged(subject: str, root: Path, kind: str, damage: str, rng: random.Random) -> Verdict:
    """One file of an unfinished run is damaged, and the run resumed."""
    case = copy_of(root / f"{subject}-half", root / "case")
    name = damage_one(case, kind, damage, rng)
    recipe = write_recipe(subject, case)
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={case / 'run'}"])
    verdict = judge(status, output, case / "run", root / subject / "run", UPDATES)
    return verdict._replace(detail=f"{name}: {verdict.detail}")


def disturbed(subject: str, root: Path, fault: str, rng: random.Random) -> Verdict:
    """A process that trains is disturbed at a random moment, and the same command given again."""
    case = root / "case"
    subprocess.run(["rm", "-rf", str(case)], check=True)
    case.mkdir()
    recipe = write_recipe(subject, case)
    process = start(recipe, case / "run", FULL_DISK if fault == "full disk" else ())
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=SECONDS if fault == "full disk" else rng.uniform(0, 40))
    if process.poll() is None and PROCESS_FAULTS[fault] is not None:
        process.send_signal(PROCESS_FAULTS[fault])
        if fault == "STOP and CONT":
            time.sleep(rng.uniform(0, 3))
            process.send_signal(signal.SIGCONT)
    try:
        output = process.communicate(timeout=SECONDS)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        return Verdict("hang", fault)
    first = judge(1, output, case / "run", root / subject / "run", UPDATES)
    if first.kind == "traceback" and output.strip() and process.returncode >= 0:
        return first
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={case / 'run'}"])
    return judge(status, output, case / "run", root / subject / "run", UPDATES)


def plan(rng: random.Random, processes_every: int) -> "itertools.chain":
    """Endless faults: every pair of file and damage in random order, a process disturbed now and then."""
    pairs = list(itertools.product(FILES, DAMAGES))
    while True:
        rng.shuffle(pairs)
        for number, pair in enumerate(pairs, start=1):
            yield pair
            if processes_every and number % processes_every == 0:
                yield ("process", rng.choice(list(PROCESS_FAULTS)))


def main() -> int:
    """Runs the campaign; 1 when a verdict is bad."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=10**9)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--processes_every", type=int, default=6)
    parser.add_argument("--subjects", nargs="*", default=list(SUBJECTS))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rng, counts, bad = random.Random(arguments.seed), Counter(), []
    deadline = time.monotonic() + 3600 * arguments.hours
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for kind, verdict in input_verdicts(root / "inputs", arguments.inputs, arguments.seed):
            note(counts, bad, "bad input", kind, verdict)
        for subject in arguments.subjects if arguments.faults else ():
            (root / subject).mkdir()
            undisturbed_run(subject, root / subject)
        for kind, fault in itertools.islice(plan(rng, arguments.processes_every), arguments.faults):
            if time.monotonic() > deadline:
                break
            subject = rng.choice(arguments.subjects)
            is_process = kind == "process"
            verdict = disturbed(subject, root, fault, rng) if is_process else damaged(subject, root, kind, fault, rng)
            note(counts, bad, kind, fault, verdict)
    print(table(counts))
    if arguments.output:
        arguments.output.write_text(json.dumps({"seed": arguments.seed, "bad": bad, "table": table(counts)}, indent=2))
    return int(bool(bad))


def note(counts: Counter, bad: list, kind: str, fault: str, verdict: Verdict) -> None:
    """Counts a verdict; a bad one is printed at once."""
    counts[kind, verdict.kind] += 1
    if not verdict.is_good:
        bad.append([kind, fault, *verdict])
        print(f"{verdict.kind}: {kind}, {fault}: {verdict.detail}", flush=True)


def table(counts: Counter) -> str:
    """Counts by kind of fault and verdict, as Markdown."""
    verdicts = ("resumed", "refused", "traceback", "wrong", "hang", "lost")
    lines = [f"| fault | {' | '.join(verdicts)} |", f"|---|{'---|' * len(verdicts)}"]
    for kind in sorted({kind for kind, _ in counts}):
        lines.append(f"| {kind} | {' | '.join(str(counts[kind, verdict]) for verdict in verdicts)} |")
    total = [str(sum(count for (_, each), count in counts.items() if each == verdict)) for verdict in verdicts]
    return "\n".join([*lines, f"| all | {' | '.join(total)} |"])


if __name__ == "__main__":
    sys.exit(main())
