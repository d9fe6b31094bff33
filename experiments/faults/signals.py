"""One process that trains is killed, halted, asked to end, or gets no more room on the disk; then the same command."""

import contextlib
import random
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge
from processes import POLL_SECONDS, Command, train
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, resumed, run_alone, seconds_of, undisturbed_run

LONGEST_STOP = 3.0
Strike = Callable[[Command, Path, random.Random, float], bool]
"""Does something to the command that trains in a folder, whose run takes so many seconds; False where that had ended."""


def disturbed(fault: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """A process that trains is disturbed at a random moment, and the same command given again."""
    reference, alone = undisturbed_run(subject, root), run_alone(subject, root)
    seconds, case = seconds_of(alone), case_beside(alone)
    command = train(write_recipe(subject, case), case / "run")
    is_struck = SIGNAL_FAULTS[fault](command, case / "run", rng, seconds)
    _, output = command.ended(bound(alone))
    if not is_struck:
        return Verdict(NOT_STRUCK, f"{fault} came after the end")
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    status, output = resumed(subject, case, bound(alone))
    return judge(status, output, case / "run", reference, UPDATES)


def signaled(number: int) -> Strike:
    """Sends a signal at a random moment."""

    def strike(command: Command, run: Path, rng: random.Random, seconds: float) -> bool:
        del run
        if not command.runs_for(rng.uniform(0, seconds)):
            return False
        send(command, number, rng.uniform(0, LONGEST_STOP))
        return True

    return strike


def send(command: Command, number: int, stop_seconds: float) -> None:
    """Sends a signal, and CONT so many seconds after a STOP."""
    command.strike(number)
    if number == signal.SIGSTOP:
        time.sleep(stop_seconds)
        command.strike(signal.SIGCONT)


def fill_disk(command: Command, run: Path, rng: random.Random, seconds: float) -> bool:
    """From a random checkpoint on no file can grow beyond a few KB, as on a full disk."""
    del seconds
    wanted = f"checkpoints/{rng.choice([0, 4, 8, 12, 16])}"
    while not (run / wanted).is_dir() and command.is_running:
        time.sleep(POLL_SECONDS)
    limit = rng.choice([0, 1024, 8192])
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(command.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    return command.is_running


SIGNALS = {
    "kill -9": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGINT": signal.SIGINT,
    "STOP and CONT": signal.SIGSTOP,
}
SIGNAL_FAULTS: dict[str, Strike] = {name: signaled(number) for name, number in SIGNALS.items()} | {
    "full disk": fill_disk
}
