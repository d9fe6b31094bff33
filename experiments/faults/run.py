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
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from damage import DAMAGES, FILES, copy_of, damage_one
from inputs import input_verdicts
from judges import FRAMES, NOT_STRUCK, Verdict, judge
from one_command import SECONDS, Hanging, run_command_here
from subjects import ROOT, SUBJECTS, UPDATES, start, write_recipe

POLL_SECONDS = 0.01
SIGNALS = {
    "kill -9": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGINT": signal.SIGINT,
    "STOP and CONT": signal.SIGSTOP,
}
PROCESS_FAULTS = (*SIGNALS, "full disk")


def undisturbed_run(subject: str, folder: Path) -> Path:
    """The run that nothing happens to, and a copy of it as of two thirds, with its newest checkpoints gone.

    In this process: it warms the cache of those that are damaged.
    """
    recipe = write_recipe(subject, folder)
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={folder / 'run'}"])
    if status:
        raise SystemExit(f"{subject}: the undisturbed run failed: {output}")
    half = copy_of(folder, folder.with_name(f"{subject}-half"))
    for checkpoint in (half / "run" / "checkpoints").iterdir():
        if int(checkpoint.name) > UPDATES * 2 // 3:
            subprocess.run(["rm", "-r", str(checkpoint)], check=True)
    return half


def seconds_undisturbed(subject: str, folder: Path) -> float:
    """Seconds that the run takes in a process of its own; faults strike within them."""
    folder.mkdir()
    began = time.monotonic()
    process = start(write_recipe(subject, folder), folder / "run")
    output = process.communicate(timeout=SECONDS)[0].decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{subject}: the undisturbed run failed: {output}")
    return time.monotonic() - began


def damaged(subject: str, root: Path, kind: str, damage: str, rng: random.Random) -> Verdict:
    """One file of an unfinished run is damaged, and the run resumed."""
    case = copy_of(root / f"{subject}-half", root / "case")
    name = damage_one(case, kind, damage, rng)
    if not name:
        return Verdict(NOT_STRUCK, f"no {kind} to damage")
    recipe = write_recipe(subject, case)
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={case / 'run'}"])
    verdict = judge(status, output, case / "run", root / subject / "run", UPDATES)
    return verdict._replace(detail=f"{name}: {verdict.detail}")


def disturbed(subject: str, root: Path, fault: str, rng: random.Random, seconds: float) -> Verdict:
    """A process that trains is disturbed at a random moment of its ``seconds``, and the same command given again."""
    case = root / "case"
    subprocess.run(["rm", "-rf", str(case)], check=True)
    case.mkdir()
    recipe = write_recipe(subject, case)
    process = start(recipe, case / "run")
    is_struck = (
        fill_disk(process, case / "run", rng) if fault == "full disk" else signaled(process, fault, rng, seconds)
    )
    try:
        output = process.communicate(timeout=SECONDS)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Verdict("hang", fault)
    if not is_struck:
        return Verdict(NOT_STRUCK, f"{fault} came after the end")
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    status, output = run_command_here(["train", f"--config={recipe}", f"--workdir={case / 'run'}"])
    return judge(status, output, case / "run", root / subject / "run", UPDATES)


def signaled(process: subprocess.Popen, fault: str, rng: random.Random, seconds: float) -> bool:
    """Sends a signal at a random moment; False where the process had ended before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=rng.uniform(0, seconds))
    if process.poll() is not None:
        return False
    process.send_signal(SIGNALS[fault])
    if fault == "STOP and CONT":
        time.sleep(rng.uniform(0, 3))
        process.send_signal(signal.SIGCONT)
    return True


def fill_disk(process: subprocess.Popen, run: Path, rng: random.Random) -> bool:
    """From a random checkpoint on no file can grow beyond a few KB, as on a full disk; False where the process had ended."""
    wanted = f"checkpoints/{rng.choice([0, 4, 8, 12, 16])}"
    while not (run / wanted).is_dir() and process.poll() is None:
        time.sleep(POLL_SECONDS)
    limit = rng.choice([0, 1024, 8192])
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    return process.poll() is None


def plan(rng: random.Random, processes_every: int) -> "itertools.chain":
    """Endless faults: every pair of file and damage in random order, a process disturbed now and then."""
    pairs = list(itertools.product(FILES, DAMAGES))
    while True:
        rng.shuffle(pairs)
        for number, pair in enumerate(pairs, start=1):
            yield pair
            if processes_every and number % processes_every == 0:
                yield ("process", rng.choice(PROCESS_FAULTS))


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
    campaign = Campaign(arguments.seed, arguments.output)
    rng, deadline = random.Random(arguments.seed), time.monotonic() + 3600 * arguments.hours
    with tempfile.TemporaryDirectory() as folder:
        root, seconds = Path(folder), {}
        for kind, verdict in input_verdicts(root / "inputs", arguments.inputs, arguments.seed):
            campaign.note(f"bad input: {kind}", kind, verdict)
        for subject in arguments.subjects if arguments.faults else ():
            (root / subject).mkdir()
            undisturbed_run(subject, root / subject)
            seconds[subject] = seconds_undisturbed(subject, root / f"{subject}-alone")
        for kind, fault in itertools.islice(plan(rng, arguments.processes_every), arguments.faults):
            if time.monotonic() > deadline:
                break
            subject = rng.choice(arguments.subjects)
            try:
                if kind == "process":
                    verdict = disturbed(subject, root, fault, rng, seconds[subject])
                else:
                    verdict = damaged(subject, root, kind, fault, rng)
            except Hanging:
                verdict = Verdict("hang", f"{subject}, {kind}, {fault}")
            campaign.note(fault if kind == "process" else kind, f"{subject}, {fault}", verdict)
    print(campaign.table())
    return int(bool(campaign.bad))


class Campaign:
    """Counts by kind of fault and verdict, kept in a file after each."""

    def __init__(self, seed: int, output: Path | None) -> None:
        self.seed, self.output = seed, output
        self.counts: Counter[tuple[str, str]] = Counter()
        self.bad: list[list[str]] = []
        self.began = time.monotonic()
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        self.commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def note(self, kind: str, fault: str, verdict: Verdict) -> None:
        """Counts a verdict; a bad one is printed at once."""
        self.counts[kind, verdict.kind] += 1
        if not verdict.is_good:
            self.bad.append([kind, fault, *verdict])
            print(f"{verdict.kind}: {kind}, {fault}: {verdict.detail}", flush=True)
        if self.output:
            hours = round((time.monotonic() - self.began) / 3600, 3)
            found = {"seed": self.seed, "commit": self.commit, "hours": hours, "bad": self.bad, "table": self.table()}
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


if __name__ == "__main__":
    sys.exit(main())
