"""The kinds of faults. A fault is a function ``(subject, root, rng) -> Verdict``: it disturbs a run
of ``subject`` in a folder below ``root``, runs the same command again and judges the result. A new
one is such a function and a line in ``kinds``."""

import contextlib
import csv
import itertools
import math
import os
import random
import re
import resource
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge, judge_refusal
from processes import POLL_SECONDS, SECONDS, Command, as_one, ended
from subjects import (
    UPDATES,
    bound,
    case_beside,
    copy_of,
    cut_at,
    resumed,
    seconds_of,
    train,
    undisturbed,
    undisturbed_run,
    write_recipe,
)

# Files of a run and of its tokenized data, damaged.

FILES = {
    "parameters": "run/checkpoints/*/params/**/*",
    "optimizer": "run/checkpoints/*/rest/**/*",
    "progress": "run/checkpoints/*/progress/*",
    "scores": "run/checkpoints/*/metrics/*",
    "digests": "run/checkpoints/*/digests.json",
    "checkpoint metadata": "run/checkpoints/*/_CHECKPOINT_METADATA",
    "settings": "run/config.json",
    "log": "run/metrics.jsonl",
    "goodput": "run/goodput.json",
    "starts": "run/run.json",
    "data report": "run/data.json",
    "events": "run/events.*",
    "tokenizer": "run/tokenizer/*",
    "token store": "cache/*_stores/*/**/*",
}
DAMAGES = "flipped bit", "truncated", "removed", "zeros", "leftovers", "folder"


def apply_damage(file: Path, damage: str, rng: random.Random) -> None:
    """Flips one bit, cuts the file, writes a block of zeros as a disk that lost a sector, or puts
    something in its place."""
    content = bytearray(file.read_bytes())
    start = rng.randrange(max(len(content), 1))
    if damage == "leftovers":
        file.with_name(f"{file.name}.{rng.getrandbits(128):032x}.partial").write_bytes(b"half")
    elif damage in ("removed", "folder"):
        file.unlink()
        if damage == "folder":
            file.mkdir()
    elif damage == "truncated":
        file.write_bytes(content[:start])
    elif content:
        if damage == "zeros":
            content[start : start + 512] = bytes(len(content[start : start + 512]))
        else:
            content[start] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def damaged(kind: str, damage: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """One random file of a kind, of a run that stopped after two thirds of its updates, is damaged,
    and the run resumed."""
    reference = undisturbed_run(subject, root)
    case = copy_of(reference, root / "case")
    cut_at(UPDATES * 2 // 3, case / "run")
    files = sorted(file for file in case.glob(FILES[kind]) if file.is_file())
    if not files:
        return Verdict(NOT_STRUCK, f"no {kind} to damage")
    file = rng.choice(files)
    before = file.read_bytes()
    apply_damage(file, damage, rng)
    if damage != "leftovers" and file.is_file() and file.read_bytes() == before:
        return Verdict(NOT_STRUCK, f"{damage} changed nothing")
    end = resumed(subject, case, bound(reference))
    verdict = judge(*end, case / "run", reference / "run", is_log_damaged=kind == "log")
    return verdict._replace(detail=f"{file.relative_to(case)}: {verdict.detail}")


# One process that trains.

LONGEST_STOP = 3.0
LOST_ANOTHER = os.EX_TEMPFAIL
"""The status of a process of several that lost another; its last line says why."""
TOO_LATE = Verdict(NOT_STRUCK, "the run had ended")
Begin = Callable[..., Command]
"""Starts the training of a case; named arguments are variables of its environment."""
Strike = Callable[[Begin, Path, random.Random, float], Verdict]
"""Starts the training of a folder, disturbs it within the seconds of its run and returns how it
ended, by ``end_of``."""


def disturbed(strike: Strike, subject: str, root: Path, rng: random.Random) -> Verdict:
    """A process that trains is disturbed, and the same command given again."""
    reference = undisturbed_run(subject, root)
    case = case_beside(reference)
    first = strike(partial(train, subject, case), case, rng, seconds_of(reference))
    if first.kind != "resumed":
        return first
    verdict = judge(*resumed(subject, case, bound(reference)), case / "run", reference / "run")
    return verdict._replace(detail=f"{first.detail}: {verdict.detail}")


# What docs/internals/faults.md allows: JAX's frames, and then a sentence.
ABORT_OF_JAX = re.compile(r"^\*\*\* Check failure stack trace: \*\*\*$(\n +@ .*)*", re.MULTILINE)
LAST_LINE = re.compile(r"^transformer-jax: .*\n\Z", re.MULTILINE)


def end_of(command: Command, detail: str, expected: tuple[int, ...] = (), seconds: float = 2 * SECONDS) -> Verdict:
    """Wait for a disturbed command: no traceback, and one of the expected statuses if there are
    any."""
    status, output = command.ended(seconds)
    has_last_line = LAST_LINE.search(output)
    if FRAMES.search(ABORT_OF_JAX.sub("", output) if has_last_line else output):
        return Verdict("traceback", output[-2000:])
    if (expected and status not in expected) or (status == LOST_ANOTHER and not has_last_line):
        return Verdict("wrong", f"{detail}: status {status}: {output[-500:]}")
    return Verdict("resumed", f"{detail}, status {status}")


def signaled(number: int, begin: Begin, case: Path, rng: random.Random, seconds: float) -> Verdict:
    """A signal at a random moment."""
    command, moment = begin(), rng.uniform(0, seconds)
    if not command.runs_for(moment):
        return TOO_LATE
    command.send(number, rng.uniform(0, LONGEST_STOP))
    return end_of(command, f"after {moment:.1f} s")


def fill_disk(begin: Begin, case: Path, rng: random.Random, seconds: float) -> Verdict:
    """From a random checkpoint on no file can grow beyond a few KB, as on a full disk."""
    command, update, limit = begin(), rng.choice([0, 4, 8, 12, 16]), rng.choice([0, 1024, 8192])
    while not (case / f"run/checkpoints/{update}").is_dir() and command.is_running:
        time.sleep(POLL_SECONDS)
    if not command.is_running:
        return TOO_LATE
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(command.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    return end_of(command, f"{limit} bytes from update {update} on")


def without_memory(begin: Begin, case: Path, rng: random.Random, seconds: float) -> Verdict:
    """From a random checkpoint on the address space can grow by a few MB at most."""
    command, update, more = begin(), rng.choice([0, 4, 8, 12, 16]), rng.choice([0, 4, 16, 64]) << 20
    while not (case / f"run/checkpoints/{update}").is_dir() and command.is_running:
        time.sleep(POLL_SECONDS)
    if not command.is_running:
        return TOO_LATE
    status = Path(f"/proc/{command.process.pid}/status").read_text(encoding="ascii")
    limit = (int(re.search(r"VmSize:\s*(\d+)", status)[1]) << 10) + more
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(command.process.pid, resource.RLIMIT_AS, (limit, limit))
    return end_of(command, f"{more >> 20} MB more from update {update} on", (0, 1))


SIGNALS = {
    "kill -9": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGINT": signal.SIGINT,
    "STOP and CONT": signal.SIGSTOP,
}
HOURS = (1.0, 72.0)


def jump(sign: int, is_killed: bool, begin: Begin, case: Path, rng: random.Random, seconds: float) -> Verdict:
    """The time of day jumps by hours; ``sign``: +1 forward, -1 back."""
    after, hours = rng.uniform(0, seconds), rng.uniform(*HOURS)
    command = begin(FAULT_CLOCK=f"{after},{sign * hours * 3600}")
    if is_killed:
        if not command.runs_for(rng.uniform(after, seconds)):
            return TOO_LATE
        # For the resumed run, in the time of this process, the clock jumps a second time, the other
        # way.
        command.send(signal.SIGKILL, 0)
    # Where the clock goes forward, Orbax may give up a save: the run ends, to be started again.
    expected = (-signal.SIGKILL,) if is_killed else (0, LOST_ANOTHER) if sign > 0 else (0,)
    return end_of(command, f"{sign * hours:.1f} h after {after:.1f} s", expected)


OPERATIONS = 200
"""About as many as a run makes; a kill that is to come in a later one does not strike."""


def slow_disk(is_killed: bool, begin: Begin, case: Path, rng: random.Random, seconds: float) -> Verdict:
    """Every file that Python writes takes long at each opening, write, fsync and renaming; a kill
    may come within a write."""
    kill_at = rng.randint(1, OPERATIONS) if is_killed else 0
    wait = 0.01 if is_killed else rng.uniform(0.02, 0.3)
    command = begin(FAULT_SLOW=f"{wait},{kill_at}")
    detail = f"{wait:.2f} s, killed in operation {kill_at}"
    first = end_of(command, detail, (0, -signal.SIGKILL) if is_killed else (0,))
    return TOO_LATE if is_killed and command.process.returncode == 0 and first.is_good else first


SECONDS_TO_END = 30.0
"""On a machine that does nothing else; ``--seconds_to_end`` where it does."""
ASKED_TO_END, BEFORE_PYTHON = 128 + signal.SIGTERM, -signal.SIGTERM
PHASES = {"start-up": "start_up", "compilation": "compile", "validation": "evaluation", "saving": "checkpoint"}


def ask_to_end(
    phase: str, seconds_to_end: float, begin: Begin, case: Path, rng: random.Random, seconds: float
) -> Verdict:
    """SIGTERM within a phase of a run, at random which of them and how late."""
    is_start, struck = phase == "start-up", case / "struck"
    delay, occurrence = rng.uniform(0, seconds / 2 if is_start else 0.2), rng.choice([1, 1, 2, 3])
    fault = f"{PHASES[phase]},{occurrence},{delay},{struck}"
    # Nothing is compiled where it was before.
    is_cached = str(phase != "compilation").lower()
    command = begin(FAULT_SIGTERM=fault, JAX_ENABLE_COMPILATION_CACHE=is_cached)
    while command.is_running and not struck.is_file():
        time.sleep(POLL_SECONDS)
    if not struck.is_file():
        return TOO_LATE
    expected = (0, ASKED_TO_END, BEFORE_PYTHON) if is_start else (0, ASKED_TO_END)
    return end_of(command, f"SIGTERM in {phase} number {occurrence}", expected, seconds_to_end)


# A run resumes on other devices.

MESHES: dict[str, dict[str, int]] = {
    **{str(count): {"data": count} for count in range(1, 5)},
    "2 x 2": {"data": 2, "fsdp": 2},
    "tensor": {"data": 1, "tensor": 2},
}
PATHS = "1-2", "1-4", "1-3", "4-1", "4-2", "1-4-2", "1-2 x 2", "1-tensor"
SAVED = (8, 12, 16, 20)


def train_on(mesh: str, subject: str, folder: Path) -> Command:
    """``train`` on as many fake devices as the mesh has."""
    flags = [f"--config.mesh.{axis}={size}" for axis, size in MESHES[mesh].items()]
    return train(subject, folder, *flags, devices=math.prod(MESHES[mesh].values()))


def moved(meshes: list[str], subject: str, root: Path, rng: random.Random) -> Verdict:
    """Stopped at a random checkpoint on the first mesh, and at another on each of those after it
    but the last."""
    stops = sorted(rng.sample(SAVED, len(meshes) - 1))
    reference = before = undisturbed_run(subject, root)
    if meshes[0] != "1":
        folder = root / f"{subject}-on-{meshes[0]}"
        before = undisturbed(folder, lambda folder: [train_on(meshes[0], subject, folder)])
    case = copy_of(before, root / "case")
    for mesh, update in zip(meshes[1:], stops, strict=True):
        cut_at(update, case / "run")
        end = train_on(mesh, subject, case).ended(bound(reference))
        verdict = judge(*end, case / "run", reference / "run", is_rounded=True)
        if verdict.kind != "resumed":
            break
    return verdict._replace(detail=f"on {mesh} devices from update {update}: {verdict.detail}")


# One of two processes of a run is signaled.

SECONDS_UNTIL_DEAD = 10
SECONDS_TO_NOTICE = 90.0
"""For the survivor; a minute is promised, at three times as long without a heartbeat."""
AFTER_A_SIGNAL = 128 + signal.SIGINT, 128 + signal.SIGTERM


def pair(subject: str, folder: Path) -> list[Command]:
    """The same command twice, as the two processes of one program; data over the devices of
    both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    environment |= {"TRANSFORMER_JAX_SECONDS_UNTIL_DEAD": str(SECONDS_UNTIL_DEAD)}
    begin = partial(train, subject, folder, "--distributed", "--config.mesh.data=2", **environment)
    return [begin(JAX_PROCESS_ID=str(index)) for index in range(2)]


def have_joined(both: list[Command]) -> bool:
    """Waits until each knows of the other; False where one ended before."""
    while not all("of 2, " in command.output() for command in both):
        if not all(command.is_running for command in both):
            return False
        time.sleep(POLL_SECONDS)
    return True


def one_disturbed(fault: str, index: int, subject: str, root: Path, rng: random.Random) -> Verdict:
    """Process ``index`` at a random moment after both have joined; 0 is the coordinator."""
    reference = undisturbed(root / f"{subject}-pair", partial(pair, subject), have_joined)
    case, moment = case_beside(reference), rng.uniform(0, seconds_of(reference))
    both = pair(subject, case)
    if not have_joined(both) or not both[index].runs_for(moment) or not both[1 - index].is_running:
        ended(both)
        return TOO_LATE
    both[index].send(SIGNALS[fault], rng.uniform(0, 2 * SECONDS_UNTIL_DEAD))
    is_kill, detail = fault == "kill -9", f"process {index} after {moment:.1f} s"
    expected = (0, LOST_ANOTHER, *(() if is_kill else AFTER_A_SIGNAL))
    try:
        # The survivor first, in its shorter time.
        for command, more in ((both[1 - index], ()), (both[index], (-signal.SIGKILL,) if is_kill else ())):
            first = end_of(command, detail, (*expected, *more), bound(reference, SECONDS_TO_NOTICE))
            if first.kind != "resumed":
                return first
    finally:
        ended(both)
    end = as_one(ended(pair(subject, case), bound(reference)))
    verdict = judge(*end, case / "run", reference / "run")
    return verdict._replace(detail=f"{detail}: {verdict.detail}")


# A sweep of two trials whose processes are killed.

ROWS = ("base", "slow")
SWEEP = """
from transformer_jax.tools.study.sweeps import Sweep

def get_sweep():
    rows = {{"base": {{}}, "slow": {{"optimizer.learning_rate": 1e-3}}}}
    return Sweep(config={config!r}, rows=rows, metric="validation/loss")
"""


def sweep(subject: str, folder: Path) -> list[Command]:
    """The command, with one worker."""
    file = folder / "sweep.py"
    file.write_text(SWEEP.format(config=str(write_recipe(subject, folder))), encoding="utf-8")
    flags = f"--sweep={file}", f"--workdir={folder / 'out'}", "--workers=1", "--grace_seconds=4"
    return [Command("sweep", *flags)]


def trials_of(out: Path) -> dict[str, Path]:
    """The run of each trial that is complete, by its row."""
    with (out / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        return {row["row"]: Path(row["folder"]) for row in csv.DictReader(file) if row["state"] == "complete"}


def judge_sweep(status: int, output: str, out: Path, reference: Path) -> Verdict:
    """All trials complete, each as in the undisturbed sweep, bit for bit; or a refusal; no
    traceback, also of a worker."""
    logs = "".join(log.read_text(encoding="utf-8", errors="replace") for log in sorted(out.glob("workers/*.log")))
    if status or FRAMES.search(output + logs):
        return judge_refusal(status, logs + output)
    trials, expected = trials_of(out), trials_of(reference)
    if sorted(trials) != sorted(ROWS):
        return Verdict("lost", output[-1000:])
    verdicts = [judge(status, "", run, expected[row]) for row, run in trials.items()]
    return next((verdict for verdict in verdicts if verdict.kind != "resumed"), verdicts[0])


def worker_of(command: Command) -> int:
    """The process of its worker; 0 where there is none yet."""
    children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children")
    with contextlib.suppress(OSError):
        return int((children.read_text().split() or ["0"])[0])
    return 0


def await_end_of(worker: int) -> None:
    """A worker that outlives its coordinator saves and ends: the next command would wait for the
    trial."""
    deadline, state = time.monotonic() + SECONDS, Path(f"/proc/{worker}/stat")
    with contextlib.suppress(OSError):
        # A zombie has ended: the process that adopted it may never reap it.
        while state.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
            time.sleep(0.05)


def sweep_disturbed(fault: str, is_worker: bool, subject: str, root: Path, rng: random.Random) -> Verdict:
    """A signal to the command or its worker, perhaps in the middle of a trial; the command again
    once all have ended."""
    reference = undisturbed(root / f"{subject}-sweep", partial(sweep, subject))
    case, moment = case_beside(reference), rng.uniform(0, seconds_of(reference))
    (command,) = sweep(subject, case)
    if not command.runs_for(moment):
        return TOO_LATE
    worker = worker_of(command)
    if not is_worker:
        command.send(SIGNALS[fault], rng.uniform(0, 2 * LONGEST_STOP))
    elif worker:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, SIGNALS[fault])
    first = end_of(command, f"after {moment:.1f} s")
    if worker:
        await_end_of(worker)
    if first.kind != "resumed":
        return first
    (end,) = ended(sweep(subject, case), bound(reference))
    verdict = judge_sweep(*end, case / "out", reference / "out")
    return verdict._replace(detail=f"{first.detail}: {verdict.detail}")


# All kinds.

Fault = Callable[[str, Path, random.Random], Verdict]


def kinds(seconds_to_end: float) -> dict[str, dict[str, Fault]]:
    """Every kind, and its faults by name. ``seconds_to_end``: after SIGTERM."""
    alone: dict[str, dict[str, Strike]] = {
        "signals": {name: partial(signaled, number) for name, number in SIGNALS.items()}
        | {"full disk": fill_disk, "no memory": without_memory},
        "clock": {
            f"{'forward' if sign > 0 else 'back'}{', kill -9' if is_killed else ''}": partial(jump, sign, is_killed)
            for sign, is_killed in itertools.product((1, -1), (False, True))
        },
        "slow disk": {"slow": partial(slow_disk, False), "slow, kill -9 within a write": partial(slow_disk, True)},
        "termination": {f"SIGTERM in {phase}": partial(ask_to_end, phase, seconds_to_end) for phase in PHASES},
    }
    return {
        "files": {f"{file}, {damage}": partial(damaged, file, damage) for file in FILES for damage in DAMAGES},
        **{kind: {name: partial(disturbed, each) for name, each in strikes.items()} for kind, strikes in alone.items()},
        "two processes": {
            f"{fault}, process {index}": partial(one_disturbed, fault, index) for fault in SIGNALS for index in range(2)
        },
        "device count": {path.replace("-", " to "): partial(moved, path.split("-")) for path in PATHS},
        "sweep": {f"{fault}, coordinator": partial(sweep_disturbed, fault, False) for fault in SIGNALS}
        | {"kill -9, worker": partial(sweep_disturbed, "kill -9", True)},
    }
