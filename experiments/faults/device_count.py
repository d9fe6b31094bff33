"""A run that stopped part-way goes on over other devices: the same batches, losses equal to rounding, or a refusal."""

import random
from pathlib import Path

from judges import Verdict, judge_to_rounding
from processes import Command, train
from subjects import UPDATES, write_recipe
from undisturbed import bound, copy_of, cut_at, fresh, require_success, undisturbed_run

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
