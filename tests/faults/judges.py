"""Judges of a disturbed run: the same to the bit as an undisturbed one, or a refusal in a sentence;
never a traceback."""

import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from subjects import UPDATES

from transformer_jax.checkpoints.reader import CheckpointReader, on_host

FRAMES = re.compile(
    r"Traceback \(most recent call last\)|^\s+File \"|\*\*\* Check failure|Fatal Python error", re.MULTILINE
)
NOT_STRUCK = "not struck"
OF_THE_HOST = re.compile("per_second|^host/|^crc32$")
OF_DECISIONS = re.compile("accuracy|bleu|chrf|/ter$")
ROUNDING, PARAMETERS_APART = 1e-3, 1e-3


class Verdict(NamedTuple):
    """``kind``: resumed, refused, traceback, wrong, hang, lost, or not struck: the fault met
    nothing, and shows nothing."""

    kind: str
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in ("resumed", "refused", NOT_STRUCK)


def records_of(run: Path) -> list[dict]:
    """What was logged, but how fast, the memory and the disk of the host, and the CRC-32 of all."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if not OF_THE_HOST.search(key)} for line in lines]


def parameters_of(run: Path) -> list[np.ndarray]:
    """The parameters after the last update."""
    checkpoints = CheckpointReader(run / "checkpoints")
    return jax.tree.leaves(checkpoints.restore_params(UPDATES, on_host(checkpoints.shapes(UPDATES))))


def difference(ours: list[dict], theirs: list[dict], *, is_rounded: bool) -> str:
    """The first difference of two logs; beyond the order of sums if ``is_rounded``: counts and
    steps must be the same.

    Scores of decisions are then left out: one that is nearly a tie, rounded the other way, changes
    them by a whole token.
    """
    if [sorted(record) for record in ours] != [sorted(record) for record in theirs]:
        return "other records"
    for one, other in zip(ours, theirs, strict=True):
        for key, value in one.items():
            if value == other[key] or (is_rounded and OF_DECISIONS.search(key)):
                continue
            if not (is_rounded and isinstance(value, float) and math.isclose(value, other[key], rel_tol=ROUNDING)):
                return f"update {one['step']}: {key} is {value}, not {other[key]}"
    return ""


def judge_refusal(status: int, output: str) -> Verdict:
    """A command that ended with another status than 0."""
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    said = [line for line in output.splitlines() if line.strip()]
    return Verdict("refused", said[-1]) if said else Verdict("traceback", f"status {status} without a word")


def judge(
    status: int, output: str, run: Path, reference: Path, *, is_log_damaged: bool = False, is_rounded: bool = False
) -> Verdict:
    """Compares what the same command made of a disturbed run with the undisturbed one.

    ``is_log_damaged``: lost records may be reported. ``is_rounded``: other devices make sums in
    another order.
    """
    if status or FRAMES.search(output):
        return judge_refusal(status, output)
    try:
        pairs = list(zip(parameters_of(run), parameters_of(reference), strict=True))
    except (OSError, ValueError) as error:
        return Verdict("lost", str(error))
    apart = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    if not apart <= (PARAMETERS_APART if is_rounded else 0):
        return Verdict("wrong", f"parameters differ by {apart:.1e}")
    if is_log_damaged and ("records were lost" in output or "records were changed" in output):
        return Verdict("resumed", "a lost log was told")
    problem = difference(records_of(run), records_of(reference), is_rounded=is_rounded)
    return Verdict("wrong", f"metrics: {problem}") if problem else Verdict("resumed")
