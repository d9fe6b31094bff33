"""Run directory of a trial in the folder of its sweep, and the results in it."""

from pathlib import Path

from transformer_jax.config.json_text import parse_json
from transformer_jax.runs.metrics_log import read_metrics


def folder_of(workdir: Path, number: int) -> Path:
    """The run directory of a trial."""
    return workdir / "trials" / f"{number:04d}"


def validations(metrics: Path) -> dict[int, dict[str, float]]:
    """Validation metrics by update: ``{500: {"validation/bleu": 21.3, ...}}``; of two records the later counts."""
    found: dict[int, dict[str, float]] = {}
    for record in read_metrics(metrics):
        values = {key: value for key, value in record.items() if key.startswith("validation/") and value is not None}
        if values:
            found[int(record["step"])] = values
    return found


def minutes_spent(goodput: Path) -> float | None:
    """Total wall time of the starts of a run, in minutes; None where it was not recorded."""
    if not goodput.is_file():
        return None
    return sum(parse_json(goodput.read_text(encoding="utf-8"))["seconds"].values()) / 60
