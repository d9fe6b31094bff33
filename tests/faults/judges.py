"""Judges of a disturbed run: the same to the bit as an undisturbed one, or a refusal in a sentence; never a traceback."""

import json
import math
import re
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_jax.checkpoints.manager import Checkpoints, on_host

FRAMES = re.compile(
    r"Traceback \(most recent call last\)|^\s+File \"|\*\*\* Check failure|Fatal Python error", re.MULTILINE
)
NOT_STRUCK = "not struck"
OF_THE_HOST = re.compile("per_second|^host/")
ROUNDED, OF_DECISIONS = re.compile("loss|nll|norm|perplexity|bits"), re.compile("accuracy|bleu|chrf|/ter$")
ROUNDING, PARAMETERS_APART = 1e-3, 1e-3
LONGEST_REFUSAL = 12
"""Lines; one sentence, or a sentence and the settings that differ."""


class Verdict(NamedTuple):
    """``kind``: resumed, refused, traceback, wrong, hang, lost, or not struck: the fault met nothing, and shows nothing."""

    kind: str
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is what was promised."""
        return self.kind in ("resumed", "refused", NOT_STRUCK)


def records_of(run: Path) -> list[dict]:
    """What was logged, but how fast, and the memory and the disk of the host."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if not OF_THE_HOST.search(key)} for line in lines]


def state_of(run: Path, step: int) -> list[np.ndarray]:
    """The parameters of a checkpoint, on the host."""
    with closing(Checkpoints(run / "checkpoints", read_only=True)) as checkpoints:
        params = checkpoints.restore_params(step, on_host(checkpoints.shapes(step)))
    leaves: list[np.ndarray] = []

    def walk(tree: object) -> None:
        if isinstance(tree, dict):
            for name in sorted(tree):
                walk(tree[name])
        else:
            leaves.append(np.asarray(tree))

    walk(params)
    return leaves


def differ_beyond_rounding(ours: list[dict], theirs: list[dict]) -> str:
    """The first thing that differs between two logs, other than by the order of sums; counts and steps must be the same.

    Scores of decisions are left out: one that is nearly a tie, rounded the other way, changes them by a whole token.
    """
    if [sorted(record) for record in ours] != [sorted(record) for record in theirs]:
        return "other records"
    for one, other in zip(ours, theirs, strict=True):
        for key, value in one.items():
            if OF_DECISIONS.search(key):
                continue
            is_rounded = isinstance(value, float) and ROUNDED.search(key)
            if not (math.isclose(value, other[key], rel_tol=ROUNDING) if is_rounded else value == other[key]):
                return f"update {one['step']}: {key} is {value}, not {other[key]}"
    return ""


def judge_to_rounding(status: int, output: str, run: Path, undisturbed: Path, step: int) -> Verdict:
    """As ``judge``, of a run on other devices, where sums are made in another order."""
    if status or FRAMES.search(output):
        return judge_refusal(status, output)
    try:
        pairs = list(zip(state_of(run, step), state_of(undisturbed, step), strict=True))
    except (OSError, ValueError) as error:
        return Verdict("lost", str(error))
    apart = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    if apart > PARAMETERS_APART:
        return Verdict("wrong", f"parameters differ by {apart:.1e}")
    problem = differ_beyond_rounding(records_of(run), records_of(undisturbed))
    return Verdict("wrong", problem) if problem else Verdict("resumed", f"parameters at most {apart:.1e} apart")


def judge_refusal(status: int, output: str) -> Verdict:
    """A command that ended with another status than 0."""
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    said = [line for line in output.splitlines() if line.strip()]
    return Verdict("refused", said[-1]) if said else Verdict("traceback", f"status {status} without a word")


def judge(
    status: int, output: str, run: Path, undisturbed: Path, step: int, *, is_log_damaged: bool = False
) -> Verdict:
    """Compares what the same command made of a disturbed run with the undisturbed one; a damaged log may be reported."""
    if FRAMES.search(output):
        return Verdict("traceback", output[-2000:])
    if status:
        return judge_refusal(status, output)
    try:
        pairs = list(zip(state_of(run, step), state_of(undisturbed, step), strict=True))
    except (OSError, ValueError) as error:
        return Verdict("lost", str(error))
    if not all(np.array_equal(ours, theirs) for ours, theirs in pairs):
        return Verdict("wrong", "parameters differ")
    is_told = "records were lost" in output or "records were changed" in output
    if not (is_told and is_log_damaged) and records_of(run) != records_of(undisturbed):
        return Verdict("wrong", "metrics differ")
    return Verdict("resumed", "a lost log was told" if is_told else "")
