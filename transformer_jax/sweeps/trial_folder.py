"""Where a trial's run lies in the folder of its sweep, and what it found."""

from pathlib import Path

from transformer_jax.reporting.metrics_log import read_metrics


def folder_of(workdir: Path, number: int) -> Path:
    """The run directory of a trial."""
    return workdir / "trials" / f"{number:04d}"


def validations(metrics: Path) -> dict[int, dict[str, float]]:
    """What the validations found, by update: ``{500: {"validation/bleu": 21.3, ...}}``; of two the later counts."""
    found: dict[int, dict[str, float]] = {}
    for record in read_metrics(metrics):
        values = {key: value for key, value in record.items() if key.startswith("validation/") and value is not None}
        if values:
            found[int(record["step"])] = values
    return found
