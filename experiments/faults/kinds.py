"""The kinds of faults. A fault is a function ``(subject, root, rng) -> Verdict``: it disturbs a run of ``subject`` in a folder
below ``root``, gives the same command again and judges the result. A new one is such a function, and a line here."""

import itertools
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clocks import jumped
from damage import DAMAGES, FILES, damaged
from database import DATABASE_FAULTS
from device_count import moved
from judges import Verdict
from signals import SIGNAL_FAULTS, SIGNALS, disturbed
from slow_disk import slowed
from termination import PHASES, asked_to_end
from two_processes import one_disturbed
from two_trials import coordinator_struck, worker_killed

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
        "database": dict(DATABASE_FAULTS),
        "clock": {
            f"{'forward' if sign > 0 else 'back'}{', kill -9' if is_killed else ''}": partial(jumped, sign, is_killed)
            for sign, is_killed in itertools.product((1, -1), (False, True))
        },
        "slow disk": {"slow": partial(slowed, False), "slow, kill -9 within a write": partial(slowed, True)},
        "termination": {f"SIGTERM in {phase}": partial(asked_to_end, phase, seconds_to_end) for phase in PHASES},
    }
