"""Examination of training, validation and test text of a run, and of texts of a user."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from transformer_jax.config import ConfigError, DataError, ExperimentConfig
from transformer_jax.config.data import NAMED_SOURCES
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.corpus_statistics import MAX_READ, sampled_pairs
from transformer_jax.data.mixed_corpora import parts_of
from transformer_jax.data.parallel_text import TextCorpus
from transformer_jax.data.sentence_pairs import SentencePair
from transformer_jax.data.text_files import plain_name
from transformer_jax.tools.data_check.pair_examination import Examination, Finding, PairText, TrainingWords, examine

# The first training pairs, for comparison with other texts.
READ_TO_COMPARE = 4000
# Share of pairs that occur in training which makes scores useless.
REPEATED = 0.2


def examine_run(config: ExperimentConfig, *, only_training: bool = False) -> list[str]:
    """Examine the texts of a run, or ``only_training`` text, and return warnings.

    Raises DataError for a serious fault of the training text, and of other texts unless
    ``data.faults`` is ``warn``.
    """
    data = config.data
    if not _has_files(config):
        return []
    other_splits = [split for split in ("validation", "test") if getattr(data, split)]
    splits = [*["validation"] * bool(config.training.evaluate_every and not data.held_out), *other_splits]
    trained = {} if data.store else _texts(config, "train")
    words = {name: TrainingWords(text) for name, text in trained.items()}
    examinations = [examine(text, words[name]) for name, text in trained.items()]
    for finding in (finding for examination in examinations for finding in examination.findings if finding.is_serious):
        # Training would leave out all pairs.
        raise DataError(finding.text)
    for split in dict.fromkeys(() if only_training else splits):
        texts = _texts(config, split)
        examinations += _examined(config, split, texts, words)
        if split == "validation":
            repeated = [finding for name in texts if name in words for finding in _repeated(config, name, texts[name])]
            examinations.append(Examination(repeated, [], {}))
    return warnings_of(config, examinations)


def examine_split(config: ExperimentConfig, split: str) -> list[str]:
    """Examine a split that is scored, as ``examine_run`` does, and return warnings."""
    name = config.data.split_name(split)
    if not _has_files(config) or name in (config.data.train_split, *["validation"] * bool(config.data.held_out)):
        return []
    return warnings_of(config, _examined(config, split, _texts(config, split), _words_to_compare(config)))


def _examined(
    config: ExperimentConfig, split: str, texts: Mapping[str, PairText], words: Mapping[str, TrainingWords]
) -> list[Examination]:
    """Examine the texts of a split and the names of their files."""
    examinations = []
    for part, text in texts.items():
        files = _corpora(config, split)[part].files(config.data.split_name(split))
        if len(files) == 2:
            called, names = f"data.{split}" + f" of {part}" * bool(part), [file.name for file in files]
            examinations.append(Examination(_swapped(called, names, _endings(config, part)), [], {}))
        examinations.append(examine(text, words.get(part)))
    return examinations


def examine_pairs(config: ExperimentConfig, files: Sequence[str], pairs: Sequence[SentencePair]) -> list[str]:
    """Examine sources and translations of a user, as ``examine_run`` does, and return warnings."""
    words = _words_to_compare(config) if _has_files(config) else {}
    names = _names([Path(file) for file in files])
    text = PairText(" and ".join(names), names, len(pairs), np.arange(1, len(pairs) + 1), pairs)
    examination = examine(text, words.get(""))
    if "" not in words:
        problem = "whether the files have the languages of the training text, which was not read"
        examination.unchecked["swapped"] = problem
    if config.data.has_pairs:
        examination.findings[:0] = _swapped(text.called, names, _endings(config, ""))
    return warnings_of(config, [examination])


def warnings_of(config: ExperimentConfig, examinations: Iterable[Examination]) -> list[str]:
    """Return a line for each fault, and one for the checks that were not possible.

    Raises DataError for a serious fault, unless ``data.faults`` is ``warn``.
    """
    examinations = list(examinations)
    findings = dict.fromkeys(finding for examination in examinations for finding in examination.findings)
    for finding in findings:
        if finding.is_serious and config.data.faults == "refuse":
            raise DataError(f"{finding.text}; if that is intended, set --config.data.faults=warn")
    unchecked = dict.fromkeys(reason for examination in examinations for reason in examination.unchecked.values())
    said = [f"not checked: {'; '.join(unchecked)}"] if unchecked else []
    return [*(f"WARNING: {finding.text}" for finding in findings), *said]


def text_of(corpus: TextCorpus, split: str, called: str) -> PairText:
    """Sample a split."""
    count = corpus.count(split)
    sample = sampled_pairs(corpus.pairs(split), count)
    lines = np.array([line + 1 for line, _ in sample], np.int64)
    return PairText(called, _names(corpus.files(split)), count, lines, [pair for _, pair in sample])


def _has_files(config: ExperimentConfig) -> bool:
    return config.data.has_pairs and config.data.source in NAMED_SOURCES


def _corpora(config: ExperimentConfig, split: str) -> dict[str, TextCorpus]:
    """Return the corpora with a split, by name, without tags and with held-out pairs."""
    source = open_corpus(config.data, config.data_seed, config.parts)
    parts = parts_of(source, config.data.split_name(split)).items()
    return {name: replace(part, tag="", held_out=0.0) for name, part in parts if isinstance(part, TextCorpus)}


def _texts(config: ExperimentConfig, split: str) -> dict[str, PairText]:
    name = config.data.split_name(split)
    called = {"train": "the training text"}.get(split, f"the {split} text")
    parts = _corpora(config, split).items()
    return {part: text_of(corpus, name, f"{called} of {part}" if part else called) for part, corpus in parts}


def _words_to_compare(config: ExperimentConfig) -> dict[str, TrainingWords]:
    """Return the words of the training text, by corpus, as far as it can be read."""
    split, words = config.data.train_split, {}
    with suppress(ConfigError, DataError, OSError):
        for name, corpus in _corpora(config, "train").items():
            pairs = list(islice(corpus.pairs(split), READ_TO_COMPARE))
            lines = np.arange(1, len(pairs) + 1)
            text = PairText("the training text", _names(corpus.files(split)), len(pairs), lines, pairs)
            words[name] = TrainingWords(text)
    return words


def _repeated(config: ExperimentConfig, part: str, text: PairText) -> list[Finding]:
    """Find a text with many pairs of the training text."""
    corpus = _corpora(config, "train")[part]
    pairs = set(text.pairs)
    trained = islice(corpus.pairs(config.data.train_split), MAX_READ)
    repeated = pairs.intersection(trained)
    share = len(repeated) / max(len(pairs), 1)
    if share < REPEATED:
        return []
    problem = (
        f"{share:.0%} of the pairs of {text.called} are training pairs: scores on them say little about other text"
    )
    return [Finding("repeated", problem)]


def _names(files: Sequence[Path]) -> tuple[str, str]:
    """Return the names of two files, or of the columns of one."""
    if len(files) == 1:
        return f"{files[0].name}, column 1", f"{files[0].name}, column 2"
    source, target = files
    return (source.name, target.name) if source.name != target.name else (str(source), str(target))


def _endings(config: ExperimentConfig, part: str) -> tuple[str, str]:
    """Return the suffixes of the training files, or the languages of the run."""
    with suppress(ConfigError, DataError, KeyError):
        files = _corpora(config, "train")[part].files(config.data.train_split) if _has_files(config) else ()
        if len(files) == 2:
            return _ending(files[0].name), _ending(files[1].name)
    return config.data.source_language, config.data.target_language


def _ending(name: str) -> str:
    return plain_name(Path(name)).rpartition(".")[2]


def _swapped(called: str, names: Sequence[str], endings: tuple[str, str]) -> list[Finding]:
    """Find files whose suffixes are in another order than in training."""
    if endings[0] == endings[1] or (_ending(names[0]), _ending(names[1])) != endings[::-1]:
        return []
    order = f"{called}: source and target are in another order than in training, {endings[0]} to {endings[1]}"
    return [Finding("swapped", f"{order}; write {names[1]} first", is_serious=True)]
