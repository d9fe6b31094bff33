"""The source of text of a config: opening it, checking that it can be read, and its languages.

Nothing here imports JAX or TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from transformer_jax.config import ConfigError, DataConfig, ExperimentConfig
from transformer_jax.config.evaluation import SPLITTING_AT_SPACES
from transformer_jax.config.languages import UNDETERMINED
from transformer_jax.config.mixture import written
from transformer_jax.data.corpus_statistics import side_text
from transformer_jax.data.mixed_corpora import parts_of
from transformer_jax.data.parallel_text import TextCorpus
from transformer_jax.data.scripts import lack_spaces, language_of_text
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.registry.plugins import with_settings

# Pairs whose script is looked at, and documents that a check of a whole text reads.
SAMPLED_PAIRS = 1000
CHECKED_DOCUMENTS = 200_000


def open_corpus(data: DataConfig, seed: int, parts: Mapping[str, Any] = MappingProxyType({})) -> Corpus:
    """Return the corpus of ``data.source`` with the settings ``parts``, without reading data.

    ``seed`` determines generated and held-out sentences. Raises ConfigError if the source of a
    plugin is incomplete.
    """
    corpus: Corpus = with_settings("data_source", data.source, parts)(data, seed)
    missing = [name for name in vars(Corpus) if not name.startswith("_") and not hasattr(corpus, name)]
    if missing:
        what = f"data.source={data.source}: {type(corpus).__name__} has no {', '.join(missing)}"
        raise ConfigError(what, remedy="a source has all methods of Corpus in transformer_jax.data.sentence_pairs")
    return corpus


def require_readable(config: ExperimentConfig, split: str, *, is_whole: bool = False) -> None:
    """Raise DataError without such a split or document, or if the first example cannot be read.

    With ``is_whole``, reads every line of parallel text, or many documents.
    """
    name = config.data.split_name(split)
    if not config.data.has_pairs:
        from transformer_jax.data.documents import no_text, open_documents

        checked, source = CHECKED_DOCUMENTS if is_whole else 1, open_documents(config.data, config.data_seed)
        if not sum(1 for part in parts_of(source, name).values() for _ in islice(part.documents(name), checked)):
            raise no_text(source, name)
        return
    for corpus in parts_of(open_corpus(config.data, config.data_seed, config.parts), name).values():
        if is_whole and isinstance(corpus, TextCorpus):
            corpus.require_sound(name)
        else:
            next(corpus.pairs(name), None)


def completed(config: ExperimentConfig) -> tuple[ExperimentConfig, str]:
    """Return the settings with absolute paths and missing languages, and a remark on these.

    Languages follow from the script of the training text, ``und`` if it has several. Languages that
    are set, or named by suffixes of files, stay. Raises DataError if the text cannot be read.
    """
    config = replace(config, init=config.init.absolute(), data=config.data.absolute())
    missing = [side for side in ("source", "target") if getattr(config.data, f"{side}_language", None) == ""]
    if not missing:
        return config, ""
    split = config.data.train_split
    parts = parts_of(open_corpus(config.data, config.data_seed, config.parts), split)
    samples = {name: list(islice(part.pairs(split), SAMPLED_PAIRS)) for name, part in parts.items()}
    languages, remarks = {}, []
    for side in missing:
        scripts = {name: language_of_text(getattr(pair, side) for pair in pairs) for name, pairs in samples.items()}
        (language, script), *_ = scripts.values()
        remark = f"{language}, by its script ({script})"
        by_part = {name: code for name, (code, _) in scripts.items()}
        if len({*by_part.values()}) > 1:
            language = UNDETERMINED
            remedy = "name files with suffixes to score by language"
            remark = f"{language}, since scripts differ ({written(by_part)}); {remedy}"
        elif language == UNDETERMINED:
            remark = f"unknown: no suffix of data.train names it, and several use its script ({script or 'none'})"
        languages[f"{side}_language"] = language
        remarks.append(f"data.{side}_language: {remark}")
    return replace(config, data=replace(config.data, **languages)), "; ".join(remarks)


def require_target_language(config: ExperimentConfig) -> None:
    """Raise ConfigError if the targets are not in the script of ``data.target_language``.

    German, the default, is in Latin letters. Languages whose BLEU counts words need spaces.
    """
    data, evaluation = config.data, config.evaluation
    if not config.scores_translations or data.source not in ("text", "mixture") or data.store:
        return
    parts = parts_of(open_corpus(data, config.data_seed, config.parts), data.train_split).values()
    targets = [pair.target for part in parts for pair in islice(part.pairs(data.train_split), SAMPLED_PAIRS)]
    language, script = language_of_text(targets)
    is_default = not (evaluation.bleu_tokenizer or evaluation.selection)
    counts_words = is_default and evaluation.tokenizer(data.target_language) in SPLITTING_AT_SPACES
    remedy = f"data.target_language={'CODE' if language == UNDETERMINED else language}"
    if data.target_language == "de" and script not in ("Latin", ""):
        problem = f"the training targets are in {script} script, but German is written in Latin"
    elif counts_words and not side_text(targets).is_spaced and lack_spaces(targets):
        problem = f"for {data.target_language!r} BLEU counts words between spaces, which the targets ({script}) lack"
        if data.source == "mixture" or language == UNDETERMINED:
            remedy = "evaluation.selection=chrf"
    else:
        return
    raise ConfigError("data.target_language", problem, f"set --config.{remedy}")
