"""A sweep of two trials whose PostgreSQL server crashes; then the same command."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from database_server import DatabaseServer, missing
from judges import FRAMES, NOT_STRUCK, Verdict, judge_refusal
from two_trials import await_end_of, judge_sweep, sweep, undisturbed_sweep, worker_of
from undisturbed import bound, case_beside, seconds_of

from transformer_jax.tools.sweeps.definition import STORAGE_VARIABLE

LONGEST_AWAY = 20.0
"""Seconds."""


def on_a_server(
    strike: Callable[[DatabaseServer, random.Random, str, Path, Path], Verdict],
) -> Callable[[str, Path, random.Random], Verdict]:
    """A fault of a server that nothing else uses."""

    def fault(subject: str, root: Path, rng: random.Random) -> Verdict:
        if missing():
            return Verdict(NOT_STRUCK, missing())
        reference = undisturbed_sweep(subject, root)
        with DatabaseServer() as server:
            return strike(server, rng, subject, case_beside(reference), reference)

    return fault


def away_for_a_while(server: DatabaseServer, rng: random.Random, subject: str, case: Path, reference: Path) -> Verdict:
    """The server crashes at a random moment, and is back some seconds later; the command need not notice."""
    moment, away = rng.uniform(0, seconds_of(reference)), rng.uniform(0, LONGEST_AWAY)
    command = sweep(subject, case, **{STORAGE_VARIABLE: server.address})
    if not command.runs_for(moment):
        return Verdict(NOT_STRUCK, "it came after the end")
    worker = worker_of(command)
    server.crash()
    time.sleep(away)
    server.start()
    _, output = command.ended(bound(reference))
    if worker:
        await_end_of(worker)
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    again = sweep(subject, case, **{STORAGE_VARIABLE: server.address})
    verdict = judge_sweep(*again.ended(bound(reference)), case / "out", reference / "out")
    return verdict._replace(detail=f"after {moment:.1f} s for {away:.1f} s: {verdict.detail}")


def away_at_the_start(server: DatabaseServer, rng: random.Random, subject: str, case: Path, reference: Path) -> Verdict:
    """A sweep that was killed is given again while the server is away, which must be said; then once it is back."""
    command = sweep(subject, case, **{STORAGE_VARIABLE: server.address})
    command.runs_for(rng.uniform(0, seconds_of(reference)))
    worker = worker_of(command)
    command.kill()
    if worker:
        await_end_of(worker)
    server.crash()
    status, output = sweep(subject, case, **{STORAGE_VARIABLE: server.address}).ended(bound(reference))
    refused = judge_refusal(status, output)
    if not status or not refused.is_good:
        return refused if status else Verdict("wrong", f"no study, and status 0: {output[-1000:]}")
    server.start()
    again = sweep(subject, case, **{STORAGE_VARIABLE: server.address})
    return judge_sweep(*again.ended(bound(reference)), case / "out", reference / "out")


DATABASE_FAULTS = {
    "away for a while": on_a_server(away_for_a_while),
    "away at the start": on_a_server(away_at_the_start),
}
