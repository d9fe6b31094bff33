"""A run of two processes, one of which is killed, asked to end or halted; then both again."""

import os
import random
import re
import signal
import socket
import time
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge
from one_command import Hanging
from processes import POLL_SECONDS, Command, train
from signals import SIGNALS, send
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, fresh, note_seconds, require_success, seconds_of

SECONDS_UNTIL_DEAD = 10
SECONDS_TO_END = 90.0
"""For the survivor; a minute is promised, at three times as long without a heartbeat."""
LONGEST_STOP = 2.0 * SECONDS_UNTIL_DEAD
LOST_ANOTHER, ASKED_TO_END = os.EX_TEMPFAIL, (128 + signal.SIGINT, 128 + signal.SIGTERM)
# What docs/clusters.md allows: JAX's frames, and then a sentence.
ABORT_OF_JAX = re.compile(r"^\*\*\* Check failure stack trace: \*\*\*$(\n +@ .*)*", re.MULTILINE)
LAST_LINE = re.compile(r"^transformer-jax: .*\n\Z", re.MULTILINE)


def pair(subject: str, folder: Path) -> list[Command]:
    """The same command twice, as the two processes of one program; data over the devices of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    recipe = write_recipe(subject, folder)
    return [
        train(
            recipe,
            folder / "run",
            "--distributed",
            "--config.mesh.data=2",
            JAX_COORDINATOR_ADDRESS=address,
            JAX_NUM_PROCESSES="2",
            JAX_PROCESS_ID=str(index),
            TRANSFORMER_JAX_SECONDS_UNTIL_DEAD=str(SECONDS_UNTIL_DEAD),
        )
        for index in range(2)
    ]


def ended(both: list[Command], seconds: float) -> list[tuple[int, str]]:
    """Status and output of each; neither is left."""
    try:
        return [each.ended(seconds) for each in both]
    finally:
        for each in both:
            each.kill()


def as_one(ends: list[tuple[int, str]]) -> tuple[int, str]:
    """The status of one that failed, and what both printed."""
    return max(abs(status) for status, _ in ends), "".join(output for _, output in ends)


def have_joined(both: list[Command]) -> bool:
    """Waits until each knows of the other; False where one ended before."""
    while not all("of 2, " in each.output() for each in both):
        if not all(each.is_running for each in both):
            return False
        time.sleep(POLL_SECONDS)
    return True


def undisturbed_pair(subject: str, root: Path) -> Path:
    """The folder of its run; its seconds are those from the moment at which both had joined."""
    folder = root / f"{subject}-pair"
    if not (folder / "seconds.json").is_file():
        fresh(folder)
        both = pair(subject, folder)
        have_joined(both)
        began = time.monotonic()
        require_success(f"{subject}: two undisturbed processes", lambda seconds: as_one(ended(both, seconds)))
        note_seconds(folder, began)
    return folder


def one_disturbed(fault: str, index: int, subject: str, root: Path, rng: random.Random) -> Verdict:
    """Process ``index`` at a random moment after both have joined; 0 is the coordinator."""
    reference = undisturbed_pair(subject, root)
    seconds, case = seconds_of(reference), case_beside(reference)
    both = pair(subject, case)
    victim, other = both[index], both[1 - index]
    moment, stop_seconds = rng.uniform(0, seconds), rng.uniform(0, LONGEST_STOP)
    if not have_joined(both) or not victim.runs_for(moment) or not other.is_running:
        ended(both, bound(reference))
        return Verdict(NOT_STRUCK, f"{fault} came after the end")
    send(victim, SIGNALS[fault], stop_seconds)
    try:
        ends = ended([other, victim], bound(reference, SECONDS_TO_END))
    except Hanging:
        return Verdict("hang", f"{fault} to process {index} after {moment:.1f} s: {other.output()[-1000:]}")
    found = f"{moment:.1f} s after the start, statuses {[status for status, _ in ends]}"
    verdict = judge_end(fault, *ends)
    if verdict.is_good:
        status, output = as_one(ended(pair(subject, case), bound(reference)))
        verdict = judge(status, output, case / "run", reference / "run", UPDATES)
    return verdict._replace(detail=f"{found}: {verdict.detail}")


def judge_end(fault: str, other: tuple[int, str], victim: tuple[int, str]) -> Verdict:
    """How the two ended, by status and output; frames of C++ are no fault where a sentence follows them."""
    for status, output in (other, victim):
        said = ABORT_OF_JAX.sub("", output) if LAST_LINE.search(output) else output
        if found := FRAMES.search(said):
            return Verdict("traceback", f"{said[found.start() :][:2000]} ... {output[-1000:]}")
        if status == LOST_ANOTHER and not LAST_LINE.search(output):
            return Verdict("wrong", f"no last line that says why: {output[-1500:]}")
    expected = {0, LOST_ANOTHER} if fault == "kill -9" else {0, *ASKED_TO_END, LOST_ANOTHER}
    is_expected = other[0] in expected and victim[0] in expected | ({-signal.SIGKILL} if fault == "kill -9" else set())
    return Verdict("resumed") if is_expected else Verdict("wrong", f"{other}, {victim}"[-3000:])
