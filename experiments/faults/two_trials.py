"""A sweep of two trials whose processes are killed; then the same command."""

import contextlib
import csv
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge, judge_refusal
from one_command import SECONDS
from processes import Command
from signals import SIGNALS, send
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, fresh, note_seconds, require_success, seconds_of

ROWS = ("base", "slow")
SWEEP = """
from transformer_jax.tools.sweeps.definition import Sweep

def get_sweep():
    rows = {{"base": {{}}, "slow": {{"optimizer.learning_rate": 1e-3}}}}
    return Sweep(config={config!r}, rows=rows, metric="validation/loss")
"""


def sweep(subject: str, folder: Path, **environment: str) -> Command:
    """The command, with one worker."""
    file = folder / "sweep.py"
    file.write_text(SWEEP.format(config=str(write_recipe(subject, folder))), encoding="utf-8")
    return Command(
        "sweep", f"--sweep={file}", f"--workdir={folder / 'out'}", "--workers=1", "--grace_seconds=4", **environment
    )


def undisturbed_sweep(subject: str, root: Path) -> Path:
    """Its folder."""
    folder = root / f"{subject}-sweep"
    if not (folder / "seconds.json").is_file():
        command = sweep(subject, fresh(folder))
        require_success(f"{subject}: the undisturbed sweep", command.ended)
        note_seconds(folder, command.began)
    return folder


def trials_of(out: Path) -> dict[str, Path]:
    """The run of each trial that is complete, by its row; empty where one is not."""
    with (out / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    are_complete = [row["state"] for row in rows] == ["complete"] * len(ROWS)
    return {row["row"]: Path(row["folder"]) for row in rows} if are_complete else {}


def judge_sweep(status: int, output: str, out: Path, undisturbed: Path) -> Verdict:
    """All trials complete, each as in the undisturbed sweep, bit for bit; or a refusal; no traceback, also of a worker."""
    logs = "".join(log.read_text(encoding="utf-8", errors="replace") for log in sorted(out.glob("workers/*.log")))
    if FRAMES.search(output + logs):
        return Verdict("traceback", (output + logs)[-3000:])
    if status:
        return judge_refusal(status, output)
    trials, expected = trials_of(out), trials_of(undisturbed)
    if sorted(trials) != sorted(ROWS):
        return Verdict("lost", output[-1000:])
    verdicts = [judge(status, "", run, expected[row], UPDATES) for row, run in trials.items()]
    return next((verdict for verdict in verdicts if verdict.kind != "resumed"), verdicts[0])


def worker_of(command: Command) -> int:
    """The process of its worker; 0 where there is none yet."""
    children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children")
    with contextlib.suppress(OSError):
        return int((children.read_text().split() or ["0"])[0])
    return 0


def await_end_of(worker: int) -> None:
    """A worker that outlives its coordinator saves and ends: the next command would wait for the trial."""
    deadline, state = time.monotonic() + SECONDS, Path(f"/proc/{worker}/stat")
    with contextlib.suppress(OSError):
        # A zombie has ended: the process that adopted it may never reap it.
        while state.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.05)


def coordinator_struck(fault: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """A signal to the command that the user gave; its worker must notice."""
    return _struck(lambda command: send(command, SIGNALS[fault], rng.uniform(0, 6)), subject, root, rng)


def worker_killed(subject: str, root: Path, rng: random.Random) -> Verdict:
    """kill -9 to the worker, in the middle of a trial perhaps; the command ends without it."""

    def strike(command: Command) -> None:
        worker = worker_of(command)
        if worker:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    return _struck(strike, subject, root, rng)


def _struck(strike: Callable[[Command], None], subject: str, root: Path, rng: random.Random) -> Verdict:
    """Strikes at a random moment, and gives the same command again once all have ended."""
    reference = undisturbed_sweep(subject, root)
    seconds, case = seconds_of(reference), case_beside(reference)
    command, moment = sweep(subject, case), rng.uniform(0, seconds)
    if not command.runs_for(moment):
        return Verdict(NOT_STRUCK, "it came after the end")
    worker = worker_of(command)
    strike(command)
    status, output = command.ended(bound(reference))
    if worker:
        await_end_of(worker)
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    verdict = judge_sweep(*sweep(subject, case).ended(bound(reference)), case / "out", reference / "out")
    return verdict._replace(detail=f"after {moment:.1f} s, status {status}: {verdict.detail}")
