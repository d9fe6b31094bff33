"""SIGTERM in one phase of a run: it must end in time, with a documented status, and the same command go on."""

import random
import signal
import time
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge
from one_command import Hanging
from processes import train
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, resumed, run_alone, seconds_of, undisturbed_run

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
