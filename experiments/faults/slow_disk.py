"""Every file that Python writes takes long at each opening, write, fsync and renaming, and the process may die within one."""

import random
import signal
from pathlib import Path

from judges import FRAMES, NOT_STRUCK, Verdict, judge
from processes import train
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, resumed, run_alone, undisturbed_run

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
