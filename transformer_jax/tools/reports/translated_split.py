"""One side of a comparison: the translations of a split by one checkpoint, read from disk or computed."""

from dataclasses import dataclass, replace
from pathlib import Path

from transformer_jax.checkpoints.selection import steps_to_average
from transformer_jax.config import DataError, ExperimentConfig, load_run_config
from transformer_jax.data.sentence_pairs import SentencePair, digest_of
from transformer_jax.runs.run_directory import ChosenRun, RunDirectory
from transformer_jax.runtime.atomic_files import require_writable
from transformer_jax.runtime.open_copies import with_addresses
from transformer_jax.tasks.saved_evaluations import (
    SavedEvaluation,
    ScoredCheckpoint,
    evaluation_stem,
    find_evaluation,
    read_evaluation,
    save_evaluation,
    stem_of,
    stem_of_text,
    whose_parameters,
)
from transformer_jax.tasks.task import task_class
from transformer_jax.tasks.trained_run import open_trained


@dataclass(frozen=True)
class ChosenSplit:
    """A split of a run's data (raw pairs), and the evaluation of it to compare.

    ``stem`` is the path of the evaluation without its suffix. It is by checkpoint ``step``, or by the mean of the last
    ``average`` checkpoints up to it, decoded with ``config``. ``step`` is None if the file itself was chosen.
    """

    stem: Path
    config: ExperimentConfig
    split: str
    pairs: list[SentencePair]
    step: int | None
    average: int = 1


@dataclass(frozen=True)
class TranslatedSplit:
    """A chosen split with its translations and the settings of the run."""

    chosen: ChosenSplit
    saved: SavedEvaluation
    trained: ExperimentConfig

    def description(self) -> str:
        report, decoding = self.saved.report, self.saved.report["decoding"]
        search = f"beam {decoding['beam_width']}, length penalty {decoding['length_penalty']:g}"
        if decoding.get("search", "beam") != "beam":
            search += f", search {decoding['search']}"
        return f"checkpoint {whose_parameters(report)}; {search}; {with_addresses(str(self.saved.stem))}.txt"


def choose_file(file: Path, config: ExperimentConfig) -> ChosenSplit:
    """The evaluation in an ``evaluation-*.json`` or ``.txt`` of a run directory; ``config`` names the data.

    The references are the split's, or in the file if the text is no split of the data. Raises DataError if a file is missing
    or damaged, or has several references.
    """
    saved = read_evaluation(stem_of(file))
    split = str(saved.report["split"])
    if "references" not in saved.report:
        return ChosenSplit(saved.stem, config, split, _pairs(config, split), step=None)
    references = saved.report["references"]
    if len(references) > 1:
        raise DataError(f"{file}: was scored against {len(references)} references; compare takes one reference")
    pairs = [SentencePair(*pair) for pair in zip(saved.report["sources"], references[0], strict=True)]
    return ChosenSplit(saved.stem, config, split, pairs, step=None)


def choose_run(workdir: Path, config: ExperimentConfig, split: str, checkpoint: str, average: int = 1) -> ChosenSplit:
    """A split decoded with ``config`` by ``checkpoint`` (``best``, ``last`` or a step), or by the mean of the last ``average``.

    The metrics of ``config`` are ignored. Raises CheckpointError if there is no such checkpoint or too few to average,
    DataError if the data has no such split.
    """
    step = steps_to_average(RunDirectory(workdir), checkpoint, average)[-1]
    name = config.data.split_name(split)
    trained = load_run_config(workdir)
    config = replace(config, evaluation=trained.evaluation)
    pairs = _pairs(config, name)
    stem = workdir / evaluation_stem(name, step, average, trained, config)
    return ChosenSplit(stem_of_text(stem, {"text": digest_of(pairs)}), config, name, pairs, step, average)


def _pairs(config: ExperimentConfig, split: str) -> list[SentencePair]:
    return task_class(config.task).scored_pairs(config, split)


def require_same_references(first: ChosenSplit, second: ChosenSplit) -> None:
    """Raises DataError, which shows the first line that differs, unless both sides have the same references."""
    which = f"{first.stem} and {second.stem}"
    if first.split != second.split:
        raise DataError(f"{which} are of different splits, {first.split!r} and {second.split!r}; compare one split")
    for number, (ours, theirs) in enumerate(zip(first.pairs, second.pairs, strict=False), start=1):
        if ours.target != theirs.target:
            differ = f"have different references in line {number}, {ours.target[:80]!r} and {theirs.target[:80]!r}"
            raise DataError(f"{which} {differ}; compare runs that translate the same text")
    if len(first.pairs) != len(second.pairs):
        counts = f"have {len(first.pairs):,} and {len(second.pairs):,} references"
        raise DataError(f"{which} {counts}; compare runs that translate the same text")


def saved_translations(chosen: ChosenSplit) -> TranslatedSplit | None:
    """The translations of the split that evaluate saved, or None; raises DataError if their number is wrong."""
    is_file = chosen.step is None
    saved = read_evaluation(chosen.stem) if is_file else find_evaluation(chosen.stem, chosen.config)
    if saved is None:
        return None
    if len(saved.hypotheses) != len(chosen.pairs):
        problem = f"{len(saved.hypotheses):,} translations, but {chosen.split!r} has {len(chosen.pairs):,} sentences"
        raise DataError(f"{saved.stem}.txt: {problem}; run evaluate again")
    return TranslatedSplit(chosen, saved, load_run_config(chosen.stem.parent))


def translate_now(chosen: ChosenSplit) -> TranslatedSplit:
    """Evaluates and saves the result as evaluate does; raises ConfigError if the folder is not writable."""
    workdir = require_writable(chosen.stem.parent, "A B")
    trained = open_trained(ChosenRun(str(workdir), chosen.config, str(chosen.step)), average=chosen.average)
    scored = ScoredCheckpoint(trained.evaluate(chosen.split), trained.steps[-1], len(trained.steps))
    return TranslatedSplit(chosen, save_evaluation(chosen.stem, scored), load_run_config(workdir))
