"""Evaluations on disk: ``evaluation-SPLIT-STEP.json`` (scores) and ``.txt`` (outputs)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from transformer_jax.config import DataError, ExperimentConfig, difference
from transformer_jax.config.migration import decoding_of_report
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.errors import StoreError, complain
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.checked_json import read_regular, with_crc, without_crc
from transformer_jax.files.json_text import finite_or_none, finite_or_null, is_count, parse_json
from transformer_jax.files.paths import is_address
from transformer_jax.run_directory.layout import write_json
from transformer_jax.run_directory.package_origin import package_origin
from transformer_jax.tasks.task import Evaluation

PREFIX = "evaluation-"
# Prefixes of the settings that a file name may have.
SETTINGS_IN_NAMES = ("decoding.", "evaluation.", "parts.")
OUTPUTS_CRC = "outputs_crc32"
# Of the 255 bytes of a file name, ``stem_of_text`` and an unfinished file add up to 60.
MAX_BYTES = 180


@dataclass(frozen=True)
class ScoredCheckpoint:
    """An evaluation of checkpoint ``step``, or of the mean of the last ``averaged`` up to it.

    ``ensemble``: the other models of an ensemble, as ``RUN:UPDATE``.
    """

    evaluation: Evaluation
    step: int
    averaged: int = 1
    ensemble: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields, this package, the metrics by name, and the evaluation."""
        which = {"checkpoint_step": self.step, "averaged_checkpoints": self.averaged, "ensemble": list(self.ensemble)}
        which["package"] = package_origin()
        return finite_or_null({**which, "metrics": self.evaluation.metrics, **self.evaluation.to_json()})


@dataclass(frozen=True)
class SavedEvaluation:
    """An evaluation of translations under ``stem``: the report as JSON, and the translations."""

    stem: Path
    report: dict[str, Any]
    hypotheses: list[str]


def evaluation_stem(
    split: str, step: int, averaged: int, trained: ExperimentConfig, used: ExperimentConfig, ensemble: str = ""
) -> str:
    """Return the name of an evaluation: ``evaluation-test-30-average3-beam_width=1``.

    It has the settings of decoding, of scores, of their parts and of the split's file in which
    ``used`` differs from ``trained``, the settings of the run, and ``ensemble``, an
    ``ensemble_suffix``. If that is too long for a file, it has a digest of them instead.
    """
    files = [f"data.{kind}" for kind in ("validation", "test") if used.data.split_name(kind) == split]
    changed = "".join(
        f"-{key.partition('.')[2]}={_short(str(value))}"
        for key, _, value in difference(trained, used)
        if value is not None and (key.startswith(SETTINGS_IN_NAMES) or key in files)
    )
    average = "" if averaged == 1 else f"-average{averaged}"
    stem, rest = f"{PREFIX}{split.replace('/', '-')}-{step}{average}", f"{changed}{ensemble}"
    return f"{stem}{rest}" if len(f"{stem}{rest}".encode()) <= MAX_BYTES else f"{stem}~{digest([rest])[:8]}"


def stem_of_text(stem: Path, report: Mapping[str, Any]) -> Path:
    """Add a digest to ``stem`` if the file of that name has scores of another text."""
    text, saved = report.get("text"), _file(stem, "json")
    with suppress(DataError):
        if text and _read_report(saved).get("text", text) != text:
            return stem.with_name(f"{stem.name}-text~{text[:8]}")
    return stem


def _short(value: str) -> str:
    return f"{Path(value).name}~{digest([value])[:8]}" if "/" in value else value


def ensemble_suffix(workdir: str | Path, others: Sequence[str]) -> str:
    """Return the suffix of an ensemble's results: ``-ensemble+b-2434+c-4000``, or empty.

    A run outside the folder of ``workdir`` gets a digest of its path or address,
    ``+b~0f3a9c21-2434``, since names repeat between folders.
    """
    siblings = _whole_name(workdir).rpartition("/")[0]
    suffix = ""
    for member in others:
        folder, _, step = member.rpartition(":")
        run = _whole_name(folder)
        parent, _, name = run.rpartition("/")
        suffix += f"+{name}{'' if parent == siblings else f'~{digest([run])[:8]}'}-{step}"
    return suffix and f"-ensemble{suffix}"


def _whole_name(run: str | Path) -> str:
    name = str(run)
    return name.rstrip("/") if is_address(name) else str(Path(name).expanduser().resolve())


def save_evaluation(stem: Path, scored: ScoredCheckpoint) -> SavedEvaluation:
    """Write the scores, and the outputs if any, under the path ``stem`` without suffix."""
    report, outputs = scored.to_json(), scored.evaluation.outputs
    if outputs is not None:
        text = "".join(f"{line}\n" for line in outputs).encode()
        report[OUTPUTS_CRC] = f"{crc32(text):08x}"
        write_whole(_file(stem, "txt"), text)
    write_json(_file(stem, "json"), with_crc(report))
    return SavedEvaluation(stem, report, list(outputs or ()))


def read_evaluation(stem: Path) -> SavedEvaluation:
    """Read both files of an evaluation, or raise DataError if one is missing or damaged."""
    report = _read_report(_file(stem, "json"))
    if not {"scores", "num_sentences", "decoding"} <= set(report):
        raise DataError(f"{_file(stem, 'json')}: not the scores of translations")
    text = _file(stem, "txt")
    # As bytes: reading text would turn a carriage return in a translation into a line feed.
    try:
        content = text.read_bytes()
        hypotheses = content.decode("utf-8").split("\n")[:-1]
    except FileNotFoundError:
        raise DataError(f"{text}: no such file; the translations should be beside their scores") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{text}: not UTF-8 at byte {error.start:,}; run evaluate again") from None
    if len(hypotheses) != report["num_sentences"]:
        wanted = f"{stem.name}.json says {report['num_sentences']} sentences"
        raise DataError(f"{text}: {len(hypotheses)} lines, but {wanted}; run evaluate again")
    if report.get(OUTPUTS_CRC, (crc := f"{crc32(content):08x}")) != crc:
        raise DataError(f"{text}: not the translations that were scored: their CRC-32 differs; run evaluate again")
    return SavedEvaluation(stem, report, hypotheses)


def find_evaluation(stem: Path, used: ExperimentConfig) -> SavedEvaluation | None:
    """Return the evaluation of that name if decoded with ``used``, and say if it is damaged."""
    if not _file(stem, "json").exists():
        return None
    try:
        saved = read_evaluation(stem)
    except DataError as error:
        complain(f"transformer-jax: {error}; not used")
        return None
    decoding = decoding_of_report(saved.report["decoding"], used.decoding)
    return saved if decoding == asdict(used.decoding) else None


def saved_reports(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the reports in the folder by file, and a sentence for a damaged or missing one."""
    reports, problems = dict[str, dict[str, Any]](), []
    names = {stem_of(file) for suffix in ("json", "txt") for file in folder.glob(f"{PREFIX}*.{suffix}")}
    for file in sorted(_file(stem, "json") for stem in names):
        try:
            reports[file.name] = _read_report(file)
        except DataError as error:
            problems.append(str(error))
    return reports, problems


def signature_of(report: Mapping[str, Any]) -> str:
    """Return sacreBLEU's signature of BLEU, empty in a report without it."""
    return str(report.get("scores", {}).get("bleu_signature", ""))


def whose_parameters(report: Mapping[str, Any]) -> str:
    """Return the checkpoints of a report: ``2,434, average of 3, with runs/b:2434``."""
    averaged = f", average of {report['averaged_checkpoints']}" if report["averaged_checkpoints"] > 1 else ""
    # Older versions had no ensembles.
    ensemble = f", with {' and '.join(members)}" if (members := report.get("ensemble")) else ""
    return f"{report['checkpoint_step']:,}{averaged}{ensemble}"


def stem_of(file: Path) -> Path:
    """Return the path without ``.json`` or ``.txt`` (``Path.stem`` would cut ``=0.6``)."""
    return file.with_name(file.name.removesuffix(".json").removesuffix(".txt"))


def _file(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}.{suffix}")


def _read_report(file: Path) -> dict[str, Any]:
    try:
        content = read_regular(file)
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; the scores should be beside their translations") from None
    except StoreError:
        raise
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}; not the scores that evaluate writes") from None
    problem = ""
    try:
        report = without_crc(parse_json(content.decode("utf-8")))
        report["metrics"] = {name: finite_or_none(value) for name, value in report["metrics"].items()}
        members = report.get("ensemble", [])
        is_report = is_count(report["checkpoint_step"]) and is_count(report["averaged_checkpoints"])
        is_report &= isinstance(report["split"], str) and is_count(report.get("num_sentences", 0))
        is_report &= all(isinstance(report.get(name, {}), dict) for name in ("scores", "decoding"))
        is_report &= isinstance(members, list) and all(isinstance(member, str) for member in members)
        twice = [name for name in report["metrics"] if name in report.get("scores", {})]
        differing = [name for name in twice if report["metrics"][name] != finite_or_none(report["scores"][name])]
        if differing:
            raise ValueError(f"two values of {differing[0]}")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        is_report, problem = False, f" ({error})"
    if not is_report:
        raise DataError(f"{file}: not the scores that evaluate writes{problem}; run evaluate again")
    return report
