"""The time of day jumps by hours while a run trains; a kill and the same command may follow."""

import random
from pathlib import Path

from judges import NOT_STRUCK, Verdict, judge
from processes import train
from subjects import UPDATES, write_recipe
from undisturbed import bound, case_beside, resumed, run_alone, seconds_of, undisturbed_run

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
