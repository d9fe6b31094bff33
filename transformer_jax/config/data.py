"""Settings of the data: sentence pairs, tokenizer, batches."""

import re
from dataclasses import dataclass, replace

from transformer_jax.config.addresses import absolute_path, absolute_place, unasked
from transformer_jax.config.checks import require, require_choice, require_positive
from transformer_jax.config.languages import language_of_file

DATA_SOURCES = ("grammar", "copy", "reverse", "text", "tfds")
TOKENIZERS = ("bpe", "unigram", "word", "lower_word", "character", "byte", "mapped", "bpe_codes")
BATCHINGS = ("buckets", "packed")
COUNTS = ("positions", "tokens")
_BRACES = re.compile(r"\{([^{}]*),([^{}]*)\}")


@dataclass(frozen=True)
class DataConfig:
    """Source of the sentence pairs, and the filters of the training split.

    ``text`` reads ``{split}.{language}`` (plain or .gz) or ``{split}.tsv`` from ``directory``, or the files that ``train``,
    ``validation`` and ``test`` name (``a.en,a.de``, ``a.{en,de}``, ``a.tsv``); ``held_out`` training pairs (below 1:
    a fraction of them), drawn by the seed, are its validation split. A language that is not stated is that of the suffix of
    ``train``, or stays empty until its text is read (``data/corpora.py``); without ``train`` it is ``en``, ``de``.
    ``tfds`` reads the data set ``name`` below ``directory`` (or tfds's own default), and with ``download`` gets it there;
    ``grammar``, ``copy`` and ``reverse`` are generated:
    ``generated_pairs`` for training, of ``copy`` and ``reverse`` of at most ``generated_words`` each.
    The filters apply to the training split only: a validation or test sentence is never dropped or cut. ``seed`` draws what is
    generated, what the tokenizers learn from, and the order of the batches; -1 means that of the run.
    """

    source: str = "grammar"
    directory: str = ""
    train: str = ""
    validation: str = ""
    test: str = ""
    held_out: float = 0.0
    name: str = ""
    download: bool = True
    source_language: str = ""
    target_language: str = ""
    train_split: str = "train"
    validation_split: str = "validation"
    test_split: str = "test"
    generated_pairs: int = 20_000
    generated_words: int = 20
    max_source_tokens: int = 255
    max_target_tokens: int = 255
    max_length_ratio: float = 9.0
    cache_directory: str = "~/.cache/transformer_jax"
    seed: int = -1

    def absolute(self) -> "DataConfig":
        """The same, with the folder and the files written out in full."""
        directory = (
            absolute_path(self.directory, "data.directory") if self.source == "tfds" else absolute_place(self.directory)
        )
        train, validation, test = (
            _absolute_files(getattr(self, name), f"data.{name}") for name in ("train", "validation", "test")
        )
        return replace(self, directory=directory, train=train, validation=validation, test=test)

    @property
    def has_pairs(self) -> bool:
        """Whether examples are pairs of sentences, not documents."""
        return True

    def of_a_run(self) -> "DataConfig":
        """The same out of a run directory, which may be somebody else's: text at an address is not downloaded."""
        return replace(self, directory=unasked(self.directory))

    def only_reading(self) -> "DataConfig":
        """The same for using a trained model: a data set that its run names is not downloaded either."""
        return replace(self.of_a_run(), download=False)

    def files(self) -> dict[str, str]:
        """The files that are named, by the name of the split in the data."""
        splits = self.train_split, self.validation_split, self.test_split
        return dict(zip(splits, (self.train, self.validation, self.test), strict=True))

    def split_name(self, split: str) -> str:
        """Name in the data of ``train``, ``validation`` or ``test``; any other name stands for itself."""
        return {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}.get(
            split, split
        )

    def __post_init__(self) -> None:
        require_choice("data.source", self.source, DATA_SOURCES, "data_source")
        names = spelled_files(self.train) if self.train else ("source.en", "target.de")
        for side, name in zip(("source_language", "target_language"), (names[0], names[-1]), strict=True):
            if not getattr(self, side):
                object.__setattr__(self, side, language_of_file(name))
        is_found = self.source != "text" or bool(self.directory or self.train)
        problem = "must name the folder with the text files; or name the files, data.train=corpus/train.{en,de}"
        require(is_found, "data.directory", problem)
        is_text = self.source == "text" or not (any(self.files().values()) or self.held_out)
        require(is_text, "data.source", f"{self.source} reads no files that are named; set data.source=text")
        require(
            self.held_out >= 0,
            "data.held_out",
            f"{self.held_out} must be a number of pairs or a fraction; 0 holds out none",
        )
        is_one = not (self.held_out and self.validation)
        require(is_one, "data.held_out", "data.validation names the validation split already; use one of the two")
        named = self.source != "tfds" or bool(self.name)
        require(named, "data.name", "must name the data set, for example wmt14_translate/de-en")
        require(
            self.source_language != self.target_language
            or self.source in ("copy", "reverse", "grammar")
            or bool(self.train),
            "data.target_language",
            f"is {self.target_language!r}, the same as data.source_language; state a direction",
        )
        require_positive("data", self, "generated_pairs", "generated_words", "max_source_tokens", "max_target_tokens")
        # One sequence in twenty is of the validation split; half of its sequences are soon found.
        is_enough = self.source not in ("copy", "reverse") or 26**self.generated_words >= 40 * self.generated_pairs
        remedy = (
            f"there are too few sequences of {self.generated_words} letters for {self.generated_pairs} pairs; raise it"
        )
        require(is_enough, "data.generated_words", remedy)
        problem = f"{self.seed} must be at least 0 and below 2^32, or -1 for that of the run"
        require(-1 <= self.seed < 2**32, "data.seed", problem)
        require(self.max_length_ratio >= 1, "data.max_length_ratio", f"{self.max_length_ratio} must be at least 1")


def spelled_files(text: str) -> tuple[str, ...]:
    """``a.{en,de}`` and ``a.en,a.de`` as ``("a.en", "a.de")``; anything else as one name."""
    braces = _BRACES.search(text)
    if braces:
        return tuple(text[: braces.start()] + ending + text[braces.end() :] for ending in braces.groups())
    return tuple(part.strip() for part in text.split(","))


def _absolute_files(text: str, key: str) -> str:
    """``a.en,b/{c,d}``, its paths written out in full."""
    outside_braces = re.split(r",(?![^{]*\})", text)
    return ",".join(absolute_path(part.strip(), key) for part in outside_braces)


@dataclass(frozen=True)
class TokenizerConfig:
    """Tokenization. ``joint``: one vocabulary learned on both languages (needed to tie embeddings).

    ``character_coverage``: of the characters of the text, the part that ``bpe`` and ``unigram`` have a piece for; others become
    bytes. 0: by script, 0.9995 where there are thousands of characters, else 1.
    The kinds ``mapped`` and ``bpe_codes`` come with an imported model. ``min_count``: words that are rarer in the training
    split get no vector (word_vectors alone).
    """

    kind: str = "bpe"
    vocabulary_size: int = 8000
    joint: bool = True
    training_sentences: int = 1_000_000
    min_count: int = 1
    character_coverage: float = 0.9999

    def __post_init__(self) -> None:
        require_choice("tokenizer.kind", self.kind, TOKENIZERS)
        problem = f"{self.vocabulary_size} is too small; 4 ids are special"
        require(self.vocabulary_size > 8, "tokenizer.vocabulary_size", problem)
        require_positive("tokenizer", self, "training_sentences", "min_count")
        coverage = self.character_coverage
        is_share = coverage == 0 or 0.9 <= coverage <= 1
        require(is_share, "tokenizer.character_coverage", f"{coverage} must be 0 (by script) or from 0.9 to 1")


@dataclass(frozen=True)
class BatchingConfig:
    """Batching of sentence pairs, in a few static shapes.

    ``tokens_per_update``: the size of one optimizer update, over all devices. ``count`` says what is counted: ``positions``,
    padding included, of which the wider side has at most that many; or ``tokens``, of packed rows alone, without padding: that
    many are the mean of both sides and of all updates. Rows then have ``packed_length`` positions on the side with more tokens
    and fewer on the other, and longer pairs have wider rows.
    ``row_multiple``: the number of rows of every batch is a multiple of it; devices and accumulation must divide it, so
    that batches, and with them the run, do not depend on how many devices there are.
    """

    kind: str = "buckets"
    count: str = "positions"
    tokens_per_update: int = 4096
    num_buckets: int = 5
    packed_length: int = 256
    # Rows of float32 attention scores then start at multiples of 16 bytes. On Multi30k with five buckets, padding is 19.0 %
    # of all positions with multiples of 1, 20.5 % with 4, 24.4 % with 8.
    width_multiple: int = 4
    row_multiple: int = 8
    accumulation_steps: int = 1
    prefetch_batches: int = 8

    @property
    def row_length(self) -> int:
        """Positions of every row; 0 where rows differ."""
        return self.packed_length if self.kind == "packed" and self.count == "positions" else 0

    def __post_init__(self) -> None:
        require_choice("batching.kind", self.kind, BATCHINGS)
        require_choice("batching.count", self.count, COUNTS)
        problem = "tokens are counted in packed rows; use batching.kind=packed, or count positions"
        require(self.count == "positions" or self.kind == "packed", "batching.count", problem)
        names = (
            "tokens_per_update",
            "num_buckets",
            "packed_length",
            "width_multiple",
            "row_multiple",
            "accumulation_steps",
            "prefetch_batches",
        )
        require_positive("batching", self, *names)
        require(
            self.row_multiple % self.accumulation_steps == 0,
            "batching.accumulation_steps",
            f"{self.accumulation_steps} does not divide batching.row_multiple={self.row_multiple}",
        )
