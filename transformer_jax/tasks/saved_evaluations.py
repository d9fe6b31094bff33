"""Evaluations on disk: two files each, ``evaluation-SPLIT-STEP.json`` (scores) and ``.txt`` (translations, one a line)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_jax.checkpoints.run_directory import write_json
from transformer_jax.config import DataError, ExperimentConfig, difference
from transformer_jax.evaluation.report import EvaluationReport
from transformer_jax.runtime.atomic_files import write_whole

PREFIX = "evaluation-"


@dataclass(frozen=True)
class SavedEvaluation:
    """What ``save_evaluation`` wrote under ``stem``: the report as JSON, and the translations."""

    stem: Path
    report: dict[str, Any]
    hypotheses: list[str]


def evaluation_stem(split: str, step: int, averaged: int, trained: ExperimentConfig, used: ExperimentConfig) -> str:
    """The name of an evaluation: ``evaluation-test-30``, ``evaluation-test-30-average3-beam_width=1``.

    The settings of decoding in which ``used`` differs from those of the run, ``trained``, are part of it.
    """
    changes = [(key, value) for key, _, value in difference(trained, used) if key.startswith("decoding.")]
    changed = "".join(f"-{key.removeprefix('decoding.')}={value}" for key, value in changes)
    average = "" if averaged == 1 else f"-average{averaged}"
    return f"{PREFIX}{split.replace('/', '-')}-{step}{average}{changed}"


def save_evaluation(stem: Path, report: EvaluationReport, hypotheses: Sequence[str]) -> SavedEvaluation:
    """Writes both files; ``stem`` is their path without the ending."""
    write_json(_file(stem, "json"), report.to_json())
    write_whole(_file(stem, "txt"), "".join(f"{line}\n" for line in hypotheses))
    return SavedEvaluation(stem, report.to_json(), list(hypotheses))


def read_evaluation(stem: Path) -> SavedEvaluation:
    """Both files; raises DataError when one is missing, damaged, or does not belong to the other."""
    report = _read_report(_file(stem, "json"))
    text = _file(stem, "txt")
    if not text.is_file():
        raise DataError(f"{text}: no such file; the translations should lie beside their scores")
    # As bytes: reading text would make a line end of every carriage return inside a translation.
    hypotheses = text.read_bytes().decode("utf-8").split("\n")[:-1]
    if len(hypotheses) != report["num_sentences"]:
        problem = f"{len(hypotheses)} lines, but {stem.name}.json says {report['num_sentences']} sentences"
        raise DataError(f"{text}: {problem}; run evaluate again")
    return SavedEvaluation(stem, report, hypotheses)


def find_evaluation(stem: Path, used: ExperimentConfig) -> SavedEvaluation | None:
    """The evaluation of that name if it is there, sound, and decoded with the same settings."""
    try:
        saved = read_evaluation(stem)
    except DataError:
        return None
    return saved if saved.report["decoding"] == asdict(used.decoding) else None


def saved_reports(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every report in the folder with its file, in the order of their names; other files are passed over."""
    for file in sorted(folder.glob(f"{PREFIX}*.json")):
        try:
            yield file, _read_report(file)
        except DataError:
            continue


def whose_parameters(report: dict[str, Any]) -> str:
    """Which checkpoint a report is of, averaged or with whom: ``2,434, average of 3, with runs/b:2434 and runs/c:4000``."""
    averaged = f", average of {report['averaged_checkpoints']}" if report["averaged_checkpoints"] > 1 else ""
    # Reports of older versions are never of several runs.
    members = report.get("ensemble")
    together = f", with {' and '.join(members)}" if members else ""
    return f"{report['checkpoint_step']:,}{averaged}{together}"


def stem_of(file: Path) -> Path:
    """The path without ``.json`` or ``.txt``: a setting such as ``length_penalty=0.6`` may hold a dot too."""
    return file.with_name(file.name.removesuffix(".json").removesuffix(".txt"))


def _file(stem: Path, ending: str) -> Path:
    return stem.with_name(f"{stem.name}.{ending}")


def _read_report(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise DataError(f"{file}: no such file; the scores should lie beside their translations")
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        is_report = isinstance(report["scores"]["bleu"], float) and isinstance(report["checkpoint_step"], int)
        is_report = is_report and {"split", "num_sentences", "decoding", "averaged_checkpoints"} <= set(report)
    except (ValueError, KeyError, TypeError):
        is_report = False
    if not is_report:
        raise DataError(f"{file}: not the scores that evaluate writes")
    return report
