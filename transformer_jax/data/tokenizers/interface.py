"""Text to token ids and back: one interface, trained on a seeded sample of a corpus, saved beside the run.

Ids 0 to 3 are PAD, BOS, EOS and UNK for every tokenizer. Nothing here needs TensorFlow.
"""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import ConfigError, DataError, TokenizerConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.corpus_statistics import SAMPLED, side_text
from transformer_jax.data.sentence_pairs import Corpus
from transformer_jax.data.tokenizers.bpe_codes import BpeCodesTokenizer
from transformer_jax.data.tokenizers.byte import ByteTokenizer
from transformer_jax.data.tokenizers.listed import CharacterTokenizer, LowerWordTokenizer, WordTokenizer
from transformer_jax.data.tokenizers.mapped import MappedSubwordTokenizer, refuse_training
from transformer_jax.data.tokenizers.subword import SubwordTokenizer, train_subword_tokenizer
from transformer_jax.runtime.atomic_files import write_whole

FORMAT_VERSION = 1
DESCRIPTION_FILE = "tokenizer.json"
Example = TypeVar("Example")
TOKENIZER_FILES = (
    DESCRIPTION_FILE,
    *(f"tokenizer.{role}.{ending}" for role in ("joint", "source", "target") for ending in ("model", "json")),
)
"""All names that ``tokenizer_files`` gives; one that was read from a file must be among them before it is opened."""
_SPECIAL_IDS = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back. Picklable; ``tokenizer_from_bytes(kind, to_bytes())`` is an equal tokenizer."""

    @property
    def kind(self) -> str:
        """``bpe``, ``unigram``, ``word``, ``lower_word``, ``character``, ``byte``, ``mapped`` or ``bpe_codes``."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, the four special ones included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids without BOS and EOS."""
        ...

    def encode_batch(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """``encode`` of many texts; -1: as many threads as there are cores."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; PAD, BOS and EOS are left out."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each id, for display."""
        ...

    def surfaces(self, text: str) -> list[bytes]:
        """Part of ``text`` for each id of ``encode(text)``, in UTF-8; concatenated, the text, maybe after a space."""
        ...

    def fingerprint(self) -> str:
        """Hexadecimal digest of everything that determines the ids."""
        ...

    def to_bytes(self) -> bytes:
        """Everything needed, with its ``kind``, to make the tokenizer again."""
        ...


class TokenizerPair(NamedTuple):
    """The same object twice when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer


SUBWORD_KINDS = ("bpe", "unigram")
TokenizerTrainer = Callable[[Iterable[str], int], Tokenizer]
TRAINERS: dict[str, TokenizerTrainer] = {
    "bpe": partial(train_subword_tokenizer, "bpe"),
    "unigram": partial(train_subword_tokenizer, "unigram"),
    "word": WordTokenizer.train,
    "lower_word": LowerWordTokenizer.train,
    "character": CharacterTokenizer.train,
    "byte": ByteTokenizer.train,
    "mapped": refuse_training,
    "bpe_codes": refuse_training,
}
_LOADERS: dict[str, Callable[[bytes], Tokenizer]] = {
    "bpe": partial(SubwordTokenizer, "bpe"),
    "unigram": partial(SubwordTokenizer, "unigram"),
    "word": WordTokenizer.from_bytes,
    "lower_word": LowerWordTokenizer.from_bytes,
    "character": CharacterTokenizer.from_bytes,
    "byte": ByteTokenizer.from_bytes,
    "mapped": MappedSubwordTokenizer.from_bytes,
    "bpe_codes": BpeCodesTokenizer.from_bytes,
}


def sample_pairs(pairs: Iterator[Example], count: int, seed: int) -> list[Example]:
    """A uniform sample of at most ``count`` pairs, or texts, of a stream (Vitter 1985, algorithm R)."""
    rng = random.Random(seed)
    sample: list[Example] = []
    for index, pair in enumerate(pairs):
        if index < count:
            sample.append(pair)
            continue
        slot = rng.randrange(index + 1)
        if slot < count:
            sample[slot] = pair
    return sample


def train_tokenizers(config: TokenizerConfig, corpus: Corpus, split: str, seed: int) -> TokenizerPair:
    """Learns the vocabulary, or the two, from at most ``config.training_sentences`` pairs sampled over a whole split.

    ``bpe`` and ``unigram`` have exactly ``config.vocabulary_size`` ids and raise ConfigError, naming the possible sizes, where
    the text does not support that; ``word`` and ``character`` have at most that many. Raises DataError when a side of the
    sample has no text at all.
    """
    sample = sample_pairs(corpus.pairs(split), config.training_sentences, seed)
    sides = {"source": [pair.source for pair in sample], "target": [pair.target for pair in sample]}
    for side, sentences in sides.items():
        if not any(map(str.strip, sentences)):
            raise DataError(f"split {split!r}: no {side} sentence with any text to train the tokenizer on")
    if config.joint:
        joint = train_tokenizer(config, sides["source"] + sides["target"])
        return TokenizerPair(joint, joint)
    separate = []
    for side, sentences in sides.items():
        try:
            separate.append(train_tokenizer(config, sentences))
        except ConfigError as error:
            raise ConfigError(f"{error} (the {side} side alone, since tokenizer.joint=False)") from None
    return TokenizerPair(*separate)


def train_tokenizer(config: TokenizerConfig, sentences: Sequence[str]) -> Tokenizer:
    """Learns one vocabulary; raises ConfigError as ``train_tokenizers`` does."""
    if config.kind not in SUBWORD_KINDS:
        return TRAINERS[config.kind](sentences, config.vocabulary_size)
    coverage = config.character_coverage
    if not coverage:
        coverage = 0.9995 if side_text(sentences[:: len(sentences) // SAMPLED + 1]).has_many_characters else 1.0
    return train_subword_tokenizer(config.kind, sentences, config.vocabulary_size, coverage)


def tokenizer_from_bytes(kind: str, data: bytes) -> Tokenizer:
    """The tokenizer whose ``kind`` and ``to_bytes()`` these are; raises DataError if they are not."""
    if kind not in _LOADERS:
        raise DataError(f"unknown kind of tokenizer {kind!r}; known are {', '.join(_LOADERS)}")
    return _LOADERS[kind](data)


def tokenizer_files(pair: TokenizerPair) -> dict[str, bytes]:
    """``tokenizer.json`` (kinds, sizes, special ids, digests) and one vocabulary file a tokenizer, by name."""
    roles = {"joint": pair.source} if pair.source is pair.target else {"source": pair.source, "target": pair.target}
    entries, files = {}, {}
    for role, tokenizer in roles.items():
        ending = "model" if isinstance(tokenizer, SubwordTokenizer) else "json"
        name, data = f"tokenizer.{role}.{ending}", tokenizer.to_bytes()
        files[name] = data
        size, digest = tokenizer.vocabulary_size, hashlib.sha256(data).hexdigest()
        entries[role] = {"kind": tokenizer.kind, "file": name, "vocabulary_size": size, "sha256": digest}
    description = {"format_version": FORMAT_VERSION, "special_ids": _SPECIAL_IDS, "tokenizers": entries}
    # Last: where it is, the files that it describes are.
    return files | {DESCRIPTION_FILE: json.dumps(description, indent=2).encode() + b"\n"}


def save_tokenizers(pair: TokenizerPair, directory: str | os.PathLike[str]) -> None:
    """Writes ``tokenizer_files`` to a folder."""
    for name, data in tokenizer_files(pair).items():
        write_whole(Path(directory) / name, data)


def load_tokenizers(directory: str | os.PathLike[str]) -> TokenizerPair:
    """Reads what ``save_tokenizers`` wrote; raises DataError naming the file that is missing or damaged."""
    path = Path(directory) / DESCRIPTION_FILE
    content = _read(path)
    try:
        description = parse_json(content)
        version, special_ids, entries = (description[key] for key in ("format_version", "special_ids", "tokenizers"))
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: not the description of a tokenizer") from None
    if version != FORMAT_VERSION or special_ids != _SPECIAL_IDS:
        problem = f"format {version} with special ids {special_ids}"
        raise DataError(f"{path}: {problem}; this version reads format {FORMAT_VERSION} with {_SPECIAL_IDS}")
    is_sound = isinstance(entries, dict) and all(_is_entry(entry) for entry in entries.values())
    if not is_sound:
        raise DataError(
            f"{path}: not the description of a tokenizer; its files can only be {', '.join(TOKENIZER_FILES)}"
        )
    if set(entries) == {"joint"}:
        joint = _load(path.parent, entries["joint"])
        return TokenizerPair(joint, joint)
    if set(entries) != {"source", "target"}:
        raise DataError(f"{path}: describes {sorted(entries)}; expected joint, or source and target")
    return TokenizerPair(_load(path.parent, entries["source"]), _load(path.parent, entries["target"]))


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and {"file", "sha256", "kind"} <= set(entry) and entry["file"] in TOKENIZER_FILES


def _load(folder: Path, entry: dict[str, str | int]) -> Tokenizer:
    path = folder / str(entry["file"])
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise DataError(f"{path}: the content is not what {DESCRIPTION_FILE} describes; copy the run's tokenizer again")
    return tokenizer_from_bytes(str(entry["kind"]), data)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read this part of the saved tokenizer: {error.strerror or error}") from None
