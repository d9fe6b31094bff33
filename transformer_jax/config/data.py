"""Settings of data sources, tokenizer, batches of pairs, and widths of batches."""

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

from transformer_jax.config.checks import LARGEST_SEED, check_settings, setting
from transformer_jax.config.languages import UNDETERMINED, language_of_file
from transformer_jax.config.mixture import by_corpus, tags_of, weights_of, written
from transformer_jax.config.tasks import SCORES
from transformer_jax.errors import ConfigError
from transformer_jax.files.paths import absolute_path, is_address

# Logits divided by a smaller temperature overflow.
SMALLEST_TEMPERATURE = 1e-3
BATCH_TOKENS_MEANING = "Token positions that a device decodes at once; 0: 4,096 on a CPU, 16,384 elsewhere."
NAMED_SOURCES = ("text", "mixture")
# Their targets may equal their sources.
GENERATED_SOURCES = ("grammar", "copy", "reverse")
SUBWORD_KINDS = ("bpe", "unigram")
_BRACES = re.compile(r"\{([^{}]*),([^{}]*)\}")


@dataclass(frozen=True)
class SourceConfig:
    """Settings of the data that all tasks have: source, files, splits and seed."""

    source: str = setting("grammar", "Source of the data.")
    directory: str = setting("", "Folder of the data, for data.source=text instead of data.train.", changeable=True)
    train: str = setting("", "Files of the training split.", changeable=True)
    validation: str = setting("", "Files of the validation split, written as data.train.", changeable=True)
    test: str = setting("", "Files of the test split, written as data.train.", changeable=True)
    weights: str = setting(
        "", "mixture: share of each corpus in training, de=1 fr=2, relative to their sum; empty: by data.temperature."
    )
    temperature: float = setting(
        1.0,
        "mixture: T in shares proportional to n^(1/T) for corpora of n pairs or tokens (Arivazhagan et al. 2019); 1: all text "
        "equally often, large: corpora equally often.",
        at_least=0.1,
    )
    held_out: float = setting(0.0, "Part of the training data that is the validation split.", at_least=0)
    train_split: str = setting("train", "Name of the training split in the data.", changeable=True)
    validation_split: str = setting("validation", "Name of the validation split in the data.", changeable=True)
    test_split: str = setting("test", "Name of the test split in the data.", changeable=True)
    store: str = setting(
        "", "Folder or address of the training split that tokenize --output wrote, for its text.", changeable=True
    )
    cache_directory: str = setting(
        "~/.cache/transformer_jax", "Folder for tokenized corpora and compiled programs.", changeable=True
    )
    seed: int = setting(
        -1,
        "Seed of generated data, tokenizers and batch order; -1: the seed of the run.",
        at_least=-1,
        at_most=LARGEST_SEED,
    )

    has_pairs: ClassVar[bool] = False
    """Whether examples are sentence pairs, not documents."""

    def __post_init__(self) -> None:
        check_settings("data", self)
        if self.source not in NAMED_SOURCES and (self.train or self.validation or self.test):
            raise ConfigError("data.source", f"{self.source} reads no named files", "set data.source=text or mixture")
        if self.source == "mixture":
            train = by_corpus(self.train, "data.train")
            if not train:
                raise ConfigError("data.train", "must name the files of every corpus of a mixture: de=FILES fr=FILES")
            for name in train:
                if f"bleu_{name.partition('_')[0]}" in SCORES:
                    raise ConfigError("data.train", f"bleu_{name} would be two metrics", "give the corpus another name")
            for split in ("validation", "test"):
                by_corpus(getattr(self, split), f"data.{split}", train)
            if self.directory:
                raise ConfigError("data.directory", "a mixture reads the files of data.train", "leave it out")
            if weights_of(self.weights, train) and self.temperature != 1:
                raise ConfigError("data.temperature", "data.weights is set too", "use one of the two")
        else:
            if self.weights or self.temperature != 1:
                problem = f"{self.source} has no data.weights and data.temperature; set data.source=mixture"
                raise ConfigError("data.source", problem)

    def absolute(self) -> "SourceConfig":
        """Return these settings with absolute paths. Raises ConfigError at other addresses."""

        def absolute(text: str, key: str) -> str:
            parts = text.split(",") if self.has_pairs and not _BRACES.search(text) else [text]
            return ",".join(absolute_path(part.strip(), key) for part in parts)

        paths: dict[str, Any] = {"directory": absolute_path(self.directory, "data.directory")}
        paths["store"] = self.store if is_address(self.store) else absolute_path(self.store, "data.store")
        for name in ("train", "validation", "test"):
            text, key = getattr(self, name), f"data.{name}"
            corpora = by_corpus(text, key) if self.source == "mixture" else {}
            of_corpora = written({corpus: absolute(files, key) for corpus, files in corpora.items()})
            paths[name] = of_corpora if self.source == "mixture" else absolute(text, key)
        return replace(self, **paths)

    def text_settings(self) -> dict[str, object]:
        """Return the settings that determine the training text and its form, by key.

        Neither paths nor the seed are among them.
        """
        holds_none = self.validation and self.source != "mixture"
        return {"data.source": self.source, "data.held_out": 0.0 if holds_none else float(self.held_out)}

    def only_reading(self) -> "SourceConfig":
        """Return the settings for using a trained model, which downloads nothing."""
        return self

    def files(self) -> dict[str, str]:
        """Return the files by the name of the split in the data. Raises ConfigError at clashes."""
        files_of: dict[str, str] = {}
        for split in ("train", "validation", "test"):
            if files := getattr(self, split):
                name = self.split_name(split)
                before = files_of.setdefault(name, files)
                if before != files:
                    problem = f"{name!r} would have the files {before} and {files}"
                    raise ConfigError(f"data.{split}_split", problem, "give the splits different names")
        return files_of

    def split_name(self, split: str) -> str:
        """Return the name in the data of ``train``, ``validation`` or ``test``, or another name."""
        return str(getattr(self, f"{split}_split", split))


@dataclass(frozen=True)
class DataConfig(SourceConfig):
    """Source of the sentence pairs, and filters of the training split.

    Validation and test sentences are never dropped or cut. An empty language becomes the suffix of
    ``train``. Without a suffix it stays empty until the text is read (``data/corpora.py``), and
    without ``train`` it is ``en`` or ``de``.
    """

    source: str = setting(
        "grammar",
        "Source of the sentence pairs: files (text), several corpora (mixture), a tensorflow-datasets corpus (tfds), or a "
        "generator.",
        plugin="data_source",
    )
    directory: str = setting(
        "", "text: folder of {split}.{language} or {split}.tsv files, or .gz or .xz; tfds: its folder.", changeable=True
    )
    train: str = setting(
        "",
        "text: files of the training split instead of data.directory, plain, .gz or .xz: a.en,a.de, a.{en,de} or a.tsv. "
        "mixture: by corpus, de=a.{en,de} fr=b.{en,fr}; data.validation and data.test too.",
        changeable=True,
    )
    tags: str = setting(
        "", "mixture: a word in front of each source of a corpus, one piece of the vocabulary: de=<2de> fr=<2fr>."
    )
    held_out: float = setting(
        0.0,
        "text: number (or below 1: fraction) of training pairs that are the validation split instead, selected by the "
        "seed; mixture: of every corpus.",
        at_least=0,
    )
    name: str = setting("", "tfds: name of the data set, such as wmt14_translate/de-en.")
    download: bool = setting(
        True,
        "tfds: download and prepare a missing data set; a command on a trained model does so only if it is set again.",
        changeable=True,
    )
    source_language: str = setting(
        "",
        "Source language; empty: the suffix of data.train, en for data.directory, else by the script of the text (und: "
        "unknown). mixture: suffixes win; und if corpora differ.",
    )
    target_language: str = setting(
        "", "Target language, for the tokenizer of BLEU; empty: as data.source_language, but de for data.directory."
    )
    generated_pairs: int = setting(20_000, "grammar, copy, reverse: number of generated training pairs.")
    generated_words: int = setting(20, "copy, reverse: maximum number of words in a generated sentence.")
    max_source_tokens: int = setting(255, "Training pairs with more source tokens are left out.")
    max_target_tokens: int = setting(255, "Training pairs with more target tokens are left out.")
    max_length_ratio: float = setting(
        9.0, "Training pairs whose lengths in tokens differ by a larger factor are left out.", at_least=1
    )
    faults: Literal["refuse", "warn"] = setting(
        "refuse",
        "text, mixture: on validation and scored files that are swapped, empty or copies of each other, refuse to train or "
        "score, or only warn; such training text is always refused.",
        changeable=True,
    )
    bpe_dropout: float = setting(
        0.0,
        "tokenizer.kind=bpe: probability that a step of merging leaves out a merge, in the training split (Provilkov et al. "
        "2020, algorithm 1).",
        at_least=0,
        below=1,
    )
    segmentations: int = setting(
        8, "bpe_dropout: segmentations of every training pair, which are shuffled together; each takes disk space."
    )

    has_pairs: ClassVar[bool] = True

    @property
    def corpora(self) -> "dict[str, DataConfig]":
        """The settings of each corpus of a mixture, as text, by name."""
        corpora, sides = {}, ("source_language", "target_language")
        for name, part in corpora_of(self, tags="", source_language="", target_language="").items():
            corpora[name] = replace(part, **{side: getattr(part, side) or getattr(self, side) for side in sides})
        return corpora

    @property
    def required_tags(self) -> tuple[str, ...]:
        """The tags of the corpora if all have one, so that every source begins with a tag."""
        tags = by_corpus(self.tags, "data.tags")
        return tuple(tags.values()) if tags and not {*by_corpus(self.train, "data.train")} - {*tags} else ()

    def text_settings(self) -> dict[str, object]:
        return super().text_settings() | {"data.name": self.name} | ({"data.tags": self.tags} if self.tags else {})

    def only_reading(self) -> "DataConfig":
        return replace(self, download=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out and self.validation:
            raise ConfigError("data.held_out", "data.validation is set too", "use one of the two")
        tags = tags_of(self.tags, by_corpus(self.train, "data.train") if self.source == "mixture" else ())
        if tags and self.source != "mixture":
            raise ConfigError("data.source", f"{self.source} has no data.tags", "set data.source=mixture")
        if self.source == "mixture":
            corpora = self.corpora.values()
            for side in ("source_language", "target_language"):
                languages = {getattr(corpus, side) for corpus in corpora}
                object.__setattr__(self, side, languages.pop() if len(languages) == 1 else UNDETERMINED)
            return
        names = spelled_files(self.train) if self.train else ("source.en", "target.de")
        for side, name in zip(("source_language", "target_language"), (names[0], names[-1]), strict=True):
            if not getattr(self, side):
                object.__setattr__(self, side, language_of_file(name))
        if self.source == "text" and not self.directory and not self.train:
            problem = "must be the folder of the text files; or name the files, data.train=corpus/train.{en,de}"
            raise ConfigError("data.directory", problem)
        if self.source != "text" and self.held_out:
            problem = f"{self.source} has a validation split; only data.source=text and mixture hold out pairs"
            raise ConfigError("data.held_out", problem)
        if self.source == "tfds" and not self.name:
            raise ConfigError("data.name", "must name the data set, for example wmt14_translate/de-en")
        is_generated = self.source in GENERATED_SOURCES
        if self.source_language == self.target_language and not is_generated and not self.train:
            problem = f"is {self.target_language!r}, the same as data.source_language"
            raise ConfigError("data.target_language", problem, "state a direction")
        # Validation and test are 500 pairs each, of a twentieth of all sequences. Random draws soon
        # hit half of the others.
        needed = max(40 * self.generated_pairs, 20 * 500)
        if self.source in ("copy", "reverse") and 26**self.generated_words < needed:
            pairs = f"{self.generated_pairs} training pairs and 500 of each other split"
            problem = f"sequences of up to {self.generated_words} letters are too few for {pairs}"
            raise ConfigError("data.generated_words", problem, "raise it")


SourceSettings = TypeVar("SourceSettings", bound=SourceConfig)


def corpora_of(settings: SourceSettings, **overrides: object) -> dict[str, SourceSettings]:
    """Return the settings of each corpus of a mixture, as text, with ``overrides``."""
    train = by_corpus(settings.train, "data.train")
    others = {split: by_corpus(getattr(settings, split), f"data.{split}", train) for split in ("validation", "test")}
    corpora = {}
    for name, files in train.items():
        values: dict[str, Any] = {split: files_of.get(name, "") for split, files_of in others.items()}
        values |= {"source": "text", "train": files, "weights": "", "temperature": 1.0, **overrides}
        corpora[name] = replace(settings, **values)
    return corpora


def spelled_files(text: str) -> tuple[str, ...]:
    """Return the files in ``a.{en,de}``, ``a.en,a.de`` (both ``("a.en", "a.de")``) or ``a.tsv``."""
    braces = _BRACES.search(text)
    if braces:
        return tuple(text[: braces.start()] + ending + text[braces.end() :] for ending in braces.groups())
    return tuple(part.strip() for part in text.split(","))


@dataclass(frozen=True)
class TokenizerConfig:
    """Tokenization. The kind ``mapped`` comes with an imported model."""

    kind: str = setting("bpe", "Kind of tokenizer.", choices=("bpe", "unigram", "byte", "mapped"), plugin="tokenizer")
    vocabulary_size: int = setting(8000, "Maximum size of the vocabulary, with 4 special ids.", above=8)
    joint: bool = setting(True, "One vocabulary for both languages; needed to tie their embeddings.")
    training_sentences: int = setting(1_000_000, "Maximum number of sentences to train the tokenizer on.")
    min_count: int = setting(1, "Of word vectors: words with fewer occurrences in the training split get no vector.")
    character_coverage: float = setting(
        0.9999,
        "bpe, unigram: share of the characters of the text that have a piece; others become bytes. 0: 0.9995 for scripts "
        "of thousands of characters, or text with 1,000 different ones, else 1.",
        at_least=0.9,
        at_most=1,
        unless=(0, "to choose it by the script"),
    )

    def __post_init__(self) -> None:
        check_settings("tokenizer", self)


CPU_WIDTH_MULTIPLE = 4


@dataclass(frozen=True)
class BatchingConfig:
    """Batching of sentence pairs in a few static shapes, the same for any number of devices."""

    kind: Literal["buckets", "packed"] = setting(
        "buckets", "Rows of a batch: one pair, in buckets of similar lengths, or several pairs packed into each."
    )
    count: Literal["positions", "tokens"] = setting(
        "positions", "Unit of batching.tokens_per_update: positions with padding, or tokens without padding (packed)."
    )
    tokens_per_update: int = setting(
        4096,
        "Size of an optimizer update over all devices: maximum positions of the wider side, or tokens, the mean of "
        "both sides.",
        at_most=2**30,
    )
    num_buckets: int = setting(5, "buckets: number of widths, each a program to compile.")
    packed_length: int = setting(
        256, "packed: positions in a row; with count=tokens on the longer side, and longer pairs get wider rows."
    )
    # With 4 rows of float32 scores start at multiples of 16 bytes. On Multi30k with five buckets,
    # multiples of 1, 4 and 8 have 19.0, 20.5 and 24.4 % padding.
    width_multiple: int = setting(
        0, "Multiple of the widths of batches; 0: 4 on CPUs, 8 on GPUs, 16 on TPUs, where the run begins.", at_least=0
    )
    row_multiple: int = setting(
        8, "The number of rows of every batch is a multiple of it; devices and accumulation steps must divide it."
    )
    accumulation_steps: int = setting(1, "Micro-batches of a batch, whose gradients are summed, to save memory.")
    prefetch_batches: int = setting(8, "Number of batches read ahead.", at_most=10_000, changeable=True)

    @property
    def width_step(self) -> int:
        """``width_multiple``, or its value for CPUs while it is 0."""
        return self.width_multiple or CPU_WIDTH_MULTIPLE

    @property
    def row_length(self) -> int:
        """Positions of every row; 0 if rows differ."""
        return self.packed_length if self.kind == "packed" and self.count == "positions" else 0

    def widest_row(self, data: DataConfig) -> int:
        """Return the maximum positions of a row of a batch."""
        if self.row_length:
            return self.row_length
        longest = max(data.max_source_tokens, data.max_target_tokens) + 1
        longest = max(longest, self.packed_length) if self.kind == "packed" else longest
        return -(-longest // self.width_step) * self.width_step

    def check_new_run(self, config: Any) -> None:
        """Raise ConfigError unless the learned positions reach the widest row."""
        longest, widest = getattr(config.model, "longest_sequence", None), self.widest_row(config.data)
        if longest is not None and longest < widest:
            problem = f"{longest} learned positions do not reach rows of {widest} positions"
            raise ConfigError("model.max_positions", problem, f"use {widest}, or narrower rows")

    def __post_init__(self) -> None:
        check_settings("batching", self)
        if self.count == "tokens" and self.kind != "packed":
            problem = "tokens are counted in packed rows"
            raise ConfigError("batching.count", problem, "use batching.kind=packed, or count positions")
        require_accumulation_divides(self.row_multiple, self.accumulation_steps)


def require_accumulation_divides(row_multiple: int, accumulation_steps: int) -> None:
    """Raise ConfigError unless all micro-batches have the same number of rows."""
    if row_multiple % accumulation_steps:
        problem = f"{accumulation_steps} does not divide batching.row_multiple={row_multiple}"
        raise ConfigError("batching.accumulation_steps", problem)


def require_rows_fit(tokens_per_update: int, row_multiple: int, width: int) -> None:
    """Raise ConfigError unless an update holds ``row_multiple`` rows of ``width``."""
    if tokens_per_update < (least := width * row_multiple):
        problem = f"{tokens_per_update} is less than {least}, which is batching.row_multiple rows of {width}"
        raise ConfigError("batching.tokens_per_update", problem, "raise it")


MIN_WIDTH = 16
SHORT_WIDTH = 64


def one_of_two_widths(length: int, longest: int) -> int:
    """Return the width 64 if ``length`` tokens fit, else a width for ``longest``."""
    return padded_width(min(longest, SHORT_WIDTH) if length <= SHORT_WIDTH else longest)


def padded_width(length: int, longest: int | None = None) -> int:
    """Return the smallest of the widths 16, 32, 64, 96, 128, 192, 256, ... for ``length`` tokens.

    ``longest``: maximum length of the model, which limits the width, but not below ``length``.
    """
    power = max(1 << (max(length, 1) - 1).bit_length(), MIN_WIDTH)
    width = power * 3 // 4 if power > SHORT_WIDTH and length <= power * 3 // 4 else power
    return width if longest is None else max(min(width, longest), length)
