"""Translation data sets of tensorflow-datasets, which is imported inside functions only."""

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from transformer_jax.config import DataConfig, DataError
from transformer_jax.data.sentence_pairs import SentencePair, did_you_mean, digest, require_split
from transformer_jax.data.tensorflow_runtime import start_tensorflow
from transformer_jax.data.text_files import check_sentence, hash_file
from transformer_jax.files.atomic_files import waiting_for_lock
from transformer_jax.files.paths import absolute_path, is_address
from transformer_jax.registry.plugins import register

_EXAMPLES_AT_ONCE = 1024
RawPair = tuple[bytes, bytes]


@dataclass(frozen=True)
class TfdsCorpus:
    """A data set of tensorflow-datasets: ``wmt14_translate/de-en``, ``opus/medical`` ...

    A missing data set is downloaded and prepared if ``may_download``, by one of several processes.
    A ``split`` may be a slice such as ``train[:90%]``.

    Examples keep their stored order. A line break inside a sentence becomes a space. Examples with
    several languages (``TranslationVariableLanguages``) are skipped if they lack one of the two.

    Args:
        name: An argument of ``tfds.builder``, or a data set prepared in ``directory``, whose code
            may be missing.
        directory: ``data_dir`` of tfds, or the folder of one prepared version. If empty, the
            default of tfds.

    Raises:
        DataError: An unknown data set, configuration, split or language, with the choices.
    """

    name: str
    directory: str
    source_language: str
    target_language: str
    may_download: bool = True

    def pairs(self, split: str) -> Iterator[SentencePair]:
        number = 0
        for number, sides in enumerate(self._raw_pairs(split), start=1):
            where = f"{self.name}, split {split}, example {number}"
            yield SentencePair(*(check_sentence(raw, where).replace("\n", " ") for raw in sides))
        if not number:
            raise DataError(f"{self.name}, {split}: no pair of {self.source_language} and {self.target_language}")

    def count(self, split: str) -> int:
        self._require_split(split)
        return int(self._builder.info.splits[split].num_examples)

    def fingerprint(self, split: str) -> str:
        """Return a digest of name, version, languages and the content of the split's files."""
        info = self._builder.info
        self._require_split(split)
        files = sorted({Path(os.fspath(path)) for path in info.splits[split].filepaths})
        contents = (hash_file(path) if path.is_file() else str(path) for path in files)
        return digest([self.name, str(info.version), split, self.source_language, self.target_language, *contents])

    @cached_property
    def _builder(self) -> Any:
        """The tfds builder with prepared data, after a check of the languages."""
        builder = _find_builder(self.name, self.directory)
        languages = sorted(_find_translations(_import_tfds(), builder.info.features, self.name)[1].languages or ())
        for language in (self.source_language, self.target_language):
            if languages and language not in languages:
                problem = f"has no language {language!r}; it has {', '.join(languages)}"
                raise DataError(f"data set {self.name} {problem}{did_you_mean(language, languages)}")
        if not builder.info.splits:
            if not self.may_download:
                problem = f"is not in {builder.data_dir}; --config.data.download=true allows it"
                raise DataError(f"data set {self.name}: {problem}")
            with nullcontext() if is_address(builder.data_dir) else waiting_for_lock(Path(f"{builder.data_dir}.lock")):
                # The process that held the lock may have prepared it.
                builder = _find_builder(self.name, self.directory)
                if not builder.info.splits:
                    self._prepare(builder)
        return builder

    def _prepare(self, builder: Any) -> None:
        try:
            builder.download_and_prepare()
        except Exception as error:
            # Code of the data set raises anything: no network, a moved file, a missing package.
            problem = f"downloading and preparing it into {builder.data_dir} failed"
            raise DataError(f"data set {self.name}: {problem}: {type(error).__name__}: {error}") from error

    def _require_split(self, split: str) -> None:
        splits = sorted(self._builder.info.splits)
        for part in split.split("+"):
            require_split(re.sub(r"\[.*\]$", "", part), splits, f"data set {self.name}")

    def _raw_pairs(self, split: str) -> Iterator[RawPair]:
        tfds = _import_tfds()
        self._require_split(split)
        key, feature = _find_translations(tfds, self._builder.info.features, self.name)
        try:
            read_config = tfds.ReadConfig(interleave_cycle_length=1)
            dataset = self._builder.as_dataset(split=split, shuffle_files=False, read_config=read_config)
        except (ValueError, AssertionError) as error:
            raise DataError(f"data set {self.name}, split {split!r}: {error}") from None
        is_fixed = isinstance(feature, tfds.features.Translation)
        return (_read_fixed if is_fixed else _read_variable)(dataset, key, self.source_language, self.target_language)


def _import_tfds() -> ModuleType:
    start_tensorflow()
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(f"data.source=tfds needs tensorflow-datasets ({error})") from None
    return tfds


def _find_builder(name: str, directory: str) -> Any:
    # tfds would download and run the code of ``namespace:name``. A colon before a version is not
    # that.
    if re.search(r":(?!(\d+|\*)\.(\d+|\*)\.(\d+|\*)(/|$))", name):
        raise DataError(f"data.name: {name!r} would download code; install that data set, and leave out its namespace")
    tfds = _import_tfds()
    folder = Path(absolute_path(directory, "data.directory")) if directory else None
    is_one_version = folder is not None and (folder / "features.json").is_file()
    try:
        builder = tfds.builder_from_directory(folder) if is_one_version else tfds.builder(name, data_dir=folder)
    except tfds.core.registered.DatasetNotFoundError:
        names = tfds.list_builders(with_community_datasets=False)
        translations = ", ".join(choice for choice in names if "translate" in choice)
        problem = f"tensorflow-datasets has no data set {name!r}{did_you_mean(name.partition('/')[0], names)}"
        raise DataError(f"data.name: {problem} (translation sets: {translations})") from None
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition(" Here are")[0]
        raise DataError(f"data.name: {name!r} cannot be opened: {reason}{_list_configurations(tfds, name)}") from None
    if builder.info.name != name.partition("/")[0].partition(":")[0] and is_one_version:
        raise DataError(f"data.name: {directory} holds the data set {builder.info.name!r}, not {name!r}")
    return builder


def _list_configurations(tfds: ModuleType, name: str) -> str:
    try:
        configurations = list(tfds.builder_cls(name.partition("/")[0]).builder_configs)
    except (ValueError, tfds.core.registered.DatasetNotFoundError):
        return ""
    return f" (configurations: {', '.join(configurations[:50])})" if configurations else ""


def _find_translations(tfds: ModuleType, features: Any, name: str) -> tuple[str, Any]:
    """Return the feature of the sentences, and its key, which is empty at the top level."""
    kinds = tfds.features.Translation, tfds.features.TranslationVariableLanguages
    children = dict(features) if isinstance(features, tfds.features.FeaturesDict) else {}
    for key, feature in {"": features, **children}.items():
        if isinstance(feature, kinds):
            return key, feature
    raise DataError(f"data.name: {name} is not a translation data set; it has {', '.join(children) or features}")


def _read_fixed(dataset: Any, key: str, source_language: str, target_language: str) -> Iterator[RawPair]:
    def sides(example: Any) -> tuple[Any, Any]:
        texts = example[key] if key else example
        return texts[source_language], texts[target_language]

    for sources, targets in dataset.map(sides).batch(_EXAMPLES_AT_ONCE).prefetch(1).as_numpy_iterator():
        yield from zip(sources.tolist(), targets.tolist(), strict=True)


def _read_variable(dataset: Any, key: str, source_language: str, target_language: str) -> Iterator[RawPair]:
    examples = dataset.map(lambda example: example[key]) if key else dataset
    for example in examples.prefetch(_EXAMPLES_AT_ONCE).as_numpy_iterator():
        languages = [language.decode() for language in example["language"].tolist()]
        if source_language in languages and target_language in languages:
            texts = example["translation"].tolist()
            yield texts[languages.index(source_language)], texts[languages.index(target_language)]


@register("data_source", "tfds")
def tfds_corpus(data: DataConfig, seed: int) -> TfdsCorpus:
    return TfdsCorpus(data.name, data.directory, data.source_language, data.target_language, data.download)
