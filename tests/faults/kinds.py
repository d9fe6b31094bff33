"""The kinds of faults. A fault is a function ``(subject, root, rng) -> Verdict``: it disturbs a run of ``subject`` in a folder
below ``root``, runs the same command again and judges the result. A new one is such a function and a line in ``kinds``."""

import contextlib
import csv
import itertools
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

from judges import FRAMES, NOT_STRUCK, Verdict, judge, judge_refusal, judge_to_rounding
from processes import POLL_SECONDS, SECONDS, Command, Hanging, train
from subjects import (
    UPDATES,
    bound,
    case_beside,
    copy_of,
    cut_at,
    fresh,
    note_seconds,
    require_success,
    resumed,
    run_alone,
    seconds_of,
    two_thirds_of,
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
    "token store": "cache/*_stores/*/*",
}


def flip(file: Path, rng: random.Random) -> None:
    """One bit."""
    content = bytearray(file.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)


def truncate(file: Path, rng: random.Random) -> None:
    """The file ends early."""
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content))] if content else b"")


def remove(file: Path, rng: random.Random) -> None:
    """The file is gone."""
    del rng
    file.unlink()


def overwrite(file: Path, rng: random.Random) -> None:
    """A block of zeros, as a disk returns that lost a sector."""
    content = bytearray(file.read_bytes())
    start = rng.randrange(max(len(content), 1))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    file.write_bytes(content)


def clutter(file: Path, rng: random.Random) -> None:
    """What a killed process left beside it."""
    file.with_name(f"{file.name}.{rng.getrandbits(128):032x}.partial").write_bytes(b"half")


def move_aside(file: Path, rng: random.Random) -> None:
    """A folder where the file was."""
    del rng
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "flipped bit": flip,
    "truncated": truncate,
    "removed": remove,
    "zeros": overwrite,
    "leftovers": clutter,
    "folder": move_aside,
}


def damage_one(folder: Path, kind: str, damage: str, rng: random.Random) -> str:
    """Damages a random file of a kind; its name, empty where there is none, or none that the damage changes."""
    found = sorted(file for file in folder.glob(FILES[kind]) if file.is_file())
    if not found:
        return ""
    chosen = rng.choice(found)
    before = chosen.read_bytes()
    DAMAGES[damage](chosen, rng)
    is_changed = damage == "leftovers" or not chosen.is_file() or chosen.read_bytes() != before
    return chosen.relative_to(folder).as_posix() if is_changed else ""


def damaged(kind: str, damage: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """One file of an unfinished run is damaged, and the run resumed."""
    case = two_thirds_of(subject, root, root / "case")
    name = damage_one(case, kind, damage, rng)
    if not name:
        return Verdict(NOT_STRUCK, f"no {kind} to damage")
    reference = undisturbed_run(subject, root)
    status, output = resumed(subject, case, bound(reference.parent))
    verdict = judge(status, output, case / "run", reference, UPDATES, is_log_damaged=kind == "log")
    return verdict._replace(detail=f"{name}: {verdict.detail}")


# Signals, and a full disk.

LONGEST_STOP = 3.0
Strike = Callable[[Command, Path, random.Random, float], bool]
"""Applies a fault to the training command of a folder, given the seconds of its run; False if the command had ended."""


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
    """Sends a signal; after STOP waits ``stop_seconds`` and sends CONT."""
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


# The time of day jumps by hours.

HOURS = (1.0, 72.0)


def jumped(sign: int, is_killed: bool, subject: str, root: Path, rng: random.Random) -> Verdict:
    """``sign``: +1 forward, -1 back."""
    reference, alone = undisturbed_run(subject, root), run_alone(subject, root)
    seconds, case = seconds_of(alone), case_beside(alone)
    after, hours = rng.uniform(0, seconds), rng.uniform(*HOURS)
    command = train(write_recipe(subject, case), case / "run", FAULT_CLOCK=f"{after},{sign * hours * 3600}")
    if is_killed and not command.runs_for(rng.uniform(after, seconds)):
        return Verdict(NOT_STRUCK, "the run had ended before the kill")
    if is_killed:
        command.kill()
        # In the time of this process: for the run its clock jumps a second time, the other way.
        status, output = resumed(subject, case, bound(alone))
    else:
        status, output = command.ended(bound(alone))
    verdict = judge(status, output, case / "run", reference, UPDATES)
    return verdict._replace(detail=f"{sign * hours:.1f} h after {after:.1f} s: {verdict.detail}")


# Every file that Python writes takes long at each opening, write, fsync and renaming.

OPERATIONS = 200
"""About as many as a run makes; a kill that is to come in a later one does not strike."""
SECONDS_WITH_A_KILL = 0.01


def slowed(is_killed: bool, subject: str, root: Path, rng: random.Random) -> Verdict:
    """The run ends by itself, or in the middle of writing, and is then resumed on a fast disk."""
    reference, alone = undisturbed_run(subject, root), run_alone(subject, root)
    case = case_beside(alone)
    kill_at = rng.randint(1, OPERATIONS) if is_killed else 0
    seconds = SECONDS_WITH_A_KILL if is_killed else rng.uniform(0.02, 0.3)
    command = train(write_recipe(subject, case), case / "run", FAULT_SLOW=f"{seconds},{kill_at}")
    status, output = command.ended(bound(alone))
    if is_killed:
        if status != -signal.SIGKILL:
            return Verdict(NOT_STRUCK, f"the run ended before operation {kill_at}")
        if FRAMES.search(output):
            return Verdict("traceback", output[-2000:])
        status, output = resumed(subject, case, bound(alone))
    verdict = judge(status, output, case / "run", reference, UPDATES)
    return verdict._replace(detail=f"{seconds:.2f} s, killed in operation {kill_at}: {verdict.detail}")


# SIGTERM in one phase of a run.

SECONDS_TO_END = 30.0
"""On a machine that does nothing else; ``--seconds_to_end`` where it does."""
FINISHED, ASKED_TO_END, BEFORE_PYTHON = 0, 128 + signal.SIGTERM, -signal.SIGTERM
PHASES = {"start-up": "start_up", "compilation": "compile", "validation": "evaluation", "saving": "checkpoint"}


def asked_to_end(phase: str, seconds_to_end: float, subject: str, root: Path, rng: random.Random) -> Verdict:
    """Within the phase, at random which of them and how late."""
    reference, alone = undisturbed_run(subject, root), run_alone(subject, root)
    seconds, case = seconds_of(alone), case_beside(alone)
    struck = case / "struck"
    is_start = phase == "start-up"
    delay, occurrence = rng.uniform(0, seconds / 2 if is_start else 0.2), rng.choice([1, 1, 2, 3])
    fault = f"{PHASES[phase]},{occurrence},{delay},{struck}"
    # Nothing is compiled where it was before.
    is_cached = str(phase != "compilation").lower()
    command = train(
        write_recipe(subject, case), case / "run", FAULT_SIGTERM=fault, JAX_ENABLE_COMPILATION_CACHE=is_cached
    )
    while command.is_running and not struck.is_file():
        time.sleep(0.01)
    try:
        status, output = command.ended(seconds_to_end)
    except Hanging:
        return Verdict("hang", f"SIGTERM in {phase}: not ended within {seconds_to_end} s: {command.output()[-500:]}")
    took = time.monotonic() - float(struck.read_text()) if struck.is_file() else 0.0
    if not struck.is_file():
        return Verdict(NOT_STRUCK, f"no {phase} number {occurrence}")
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    if status not in (FINISHED, ASKED_TO_END) and not (is_start and status == BEFORE_PYTHON):
        return Verdict("wrong", f"SIGTERM in {phase}: status {status}: {output[-500:]}")
    verdict = judge(*resumed(subject, case, bound(alone)), case / "run", reference, UPDATES)
    return verdict._replace(detail=f"status {status} after {took:.1f} s: {verdict.detail}")


# A run resumes on other devices.

MESHES: dict[str, dict[str, int]] = {
    "1": {"data": 1},
    "2": {"data": 2},
    "3": {"data": 3},
    "4": {"data": 4},
    "2 x 2": {"data": 2, "fsdp": 2},
    "2 of tensor": {"data": 1, "tensor": 2},
}
SAVED = (8, 12, 16, 20)


def train_on(mesh: str, subject: str, folder: Path) -> Command:
    """``train`` on as many fake devices as the mesh has."""
    sizes, devices = MESHES[mesh], 1
    for size in sizes.values():
        devices *= size
    flags = [f"--config.mesh.{axis}={size}" for axis, size in sizes.items()]
    return train(write_recipe(subject, folder), folder / "run", *flags, devices=devices)


def undisturbed_on(mesh: str, subject: str, root: Path) -> Path:
    """The folder of a run that began on a mesh and ended there."""
    if mesh == "1":
        return undisturbed_run(subject, root).parent
    folder = root / f"{subject}-on-{mesh.replace(' ', '')}"
    if not (folder / "run" / "outcome.json").is_file():
        require_success(f"{subject} on {mesh} devices", train_on(mesh, subject, fresh(folder)).ended)
    return folder


def moved(before: str, *after: str, subject: str, root: Path, rng: random.Random) -> Verdict:
    """Stopped at a random checkpoint on one mesh, and at another on each of those after it but the last."""
    stops = sorted(rng.sample(SAVED, len(after)), reverse=True)
    reference = undisturbed_run(subject, root)
    case = copy_of(undisturbed_on(before, subject, root), root / "case")
    for mesh in after:
        update = stops.pop()
        cut_at(update, case / "run")
        status, output = train_on(mesh, subject, case).ended(bound(reference.parent))
        verdict = judge_to_rounding(status, output, case / "run", reference, UPDATES)
        if verdict.kind != "resumed":
            break
    return verdict._replace(detail=f"on {mesh} devices from update {update}: {verdict.detail}")


# One of two processes of a run is signaled.

SECONDS_UNTIL_DEAD = 10
SECONDS_TO_NOTICE = 90.0
"""For the survivor; a minute is promised, at three times as long without a heartbeat."""
LONGEST_STOP_OF_ONE = 2.0 * SECONDS_UNTIL_DEAD
LOST_ANOTHER, AFTER_A_SIGNAL = os.EX_TEMPFAIL, (128 + signal.SIGINT, 128 + signal.SIGTERM)
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
    moment, stop_seconds = rng.uniform(0, seconds), rng.uniform(0, LONGEST_STOP_OF_ONE)
    if not have_joined(both) or not victim.runs_for(moment) or not other.is_running:
        ended(both, bound(reference))
        return Verdict(NOT_STRUCK, f"{fault} came after the end")
    send(victim, SIGNALS[fault], stop_seconds)
    try:
        ends = ended([other, victim], bound(reference, SECONDS_TO_NOTICE))
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
    expected = {0, LOST_ANOTHER} if fault == "kill -9" else {0, *AFTER_A_SIGNAL, LOST_ANOTHER}
    is_expected = other[0] in expected and victim[0] in expected | ({-signal.SIGKILL} if fault == "kill -9" else set())
    return Verdict("resumed") if is_expected else Verdict("wrong", f"{other}, {victim}"[-3000:])


# A sweep of two trials whose processes are killed.

ROWS = ("base", "slow")
SWEEP = """
from transformer_jax.tools.study.sweeps import Sweep

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


# All kinds.

Fault = Callable[[str, Path, random.Random], Verdict]


def moves() -> dict[str, Fault]:
    """From the first mesh to those after it."""
    paths = ("1 2", "1 4", "1 3", "4 1", "4 2", "1 4 2")
    meshes = {path: path.split() for path in paths} | {
        "1 to 2 x 2": ["1", "2 x 2"],
        "1 to tensor": ["1", "2 of tensor"],
    }

    def fault(path: list[str]) -> Fault:
        return lambda subject, root, rng: moved(*path, subject=subject, root=root, rng=rng)

    return {" to ".join(path): fault(path) for path in meshes.values()}


def kinds(seconds_to_end: float) -> dict[str, dict[str, Fault]]:
    """Every kind, and its faults by name. ``seconds_to_end``: after SIGTERM."""
    return {
        "files": {
            f"{file}, {damage}": partial(damaged, file, damage) for file, damage in itertools.product(FILES, DAMAGES)
        },
        "signals": {fault: partial(disturbed, fault) for fault in SIGNAL_FAULTS},
        "two processes": {
            f"{fault}, process {index}": partial(one_disturbed, fault, index)
            for fault, index in itertools.product(SIGNALS, range(2))
        },
        "device count": moves(),
        "sweep": {f"{fault}, coordinator": partial(coordinator_struck, fault) for fault in SIGNALS}
        | {"kill -9, worker": worker_killed},
        "clock": {
            f"{'forward' if sign > 0 else 'back'}{', kill -9' if is_killed else ''}": partial(jumped, sign, is_killed)
            for sign, is_killed in itertools.product((1, -1), (False, True))
        },
        "slow disk": {"slow": partial(slowed, False), "slow, kill -9 within a write": partial(slowed, True)},
        "termination": {f"SIGTERM in {phase}": partial(asked_to_end, phase, seconds_to_end) for phase in PHASES},
    }
