"""Where a trial's run lies in the folder of its sweep, and what it found."""

import json
from pathlib import Path


def folder_of(workdir: Path, number: int) -> Path:
    """The run directory of a trial."""
    return workdir / "trials" / f"{number:04d}"


def validations(metrics: Path) -> dict[int, dict[str, float]]:
    """What the validations found, by update: ``{500: {"validation/bleu": 21.3, ...}}``; of two at one update the later counts.

    A last line that a killed process left half is passed over.
    """
    found: dict[int, dict[str, float]] = {}
    for line in metrics.read_text(encoding="utf-8").split("\n")[:-1] if metrics.is_file() else []:
        record = json.loads(line)
        values = {key: value for key, value in record.items() if key.startswith("validation/")}
        if values:
            found[int(record["step"])] = values
    return found
