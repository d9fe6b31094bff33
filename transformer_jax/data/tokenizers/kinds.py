"""Training of tokenizers on a sample of a corpus, by kind, and their files in a run directory."""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import ConfigError, DataError, TokenizerConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.config.plugins import registered
from transformer_jax.config.tasks import imported
from transformer_jax.data.corpus_statistics import SAMPLED, SUBWORD_KINDS, side_text
from transformer_jax.data.sentence_pairs import Corpus, DocumentSource, SentencePair
from transformer_jax.data.tokenizers.interface import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.listed import ByteTokenizer
from transformer_jax.data.tokenizers.subword import (
    MappedSubwordTokenizer,
    SubwordTokenizer,
    TooManyPieces,
    train_subword_tokenizer,
)
from transformer_jax.runtime.atomic_files import write_whole

FORMAT_VERSION = 1
DESCRIPTION_FILE = "tokenizer.json"
TOKENIZER_FILES = (
    DESCRIPTION_FILE,
    *(f"tokenizer.{role}.{ending}" for role in ("joint", "source", "target") for ending in ("model", "json")),
)
"""All names of ``tokenizer_files``."""
MAX_PIECES_A_WORD, MAX_PIECES_A_CHARACTER = 4.0, 1.5
# A million pairs of news have 250 million characters; documents may be longer than the memory.
MAX_SAMPLED = 1_000_000_000
Example = TypeVar("Example")
_SPECIAL_IDS = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}
_LISTED = registered("tokenizer", lambda made: imported(made) if isinstance(made, str) else made)
_OWN_LOADERS: dict[str, Callable[[bytes], Tokenizer]] = {
    **{kind: partial(SubwordTokenizer, kind) for kind in SUBWORD_KINDS},
    ByteTokenizer.kind: ByteTokenizer.from_bytes,
    MappedSubwordTokenizer.kind: MappedSubwordTokenizer.from_bytes,
}


def sample_examples(examples: Iterable[Example], count: int, seed: int) -> list[Example]:
    """A uniform sample of at most ``count`` examples of a stream (Vitter 1985, algorithm R).

    It is smaller where the first ``count`` examples have more than ``MAX_SAMPLED`` characters.
    """
    rng = random.Random(seed)
    sample: list[Example] = []
    characters = 0
    for index, example in enumerate(examples):
        if index < count:
            sample.append(example)
            characters += _characters(example)
            if characters > MAX_SAMPLED:
                count = len(sample)
            continue
        slot = rng.randrange(index + 1)
        if slot < count:
            sample[slot] = example
    return sample


def _characters(example: Any) -> int:
    """Of a text, or of the texts of a pair."""
    return len(example) if isinstance(example, str) else sum(map(len, example))


def train_tokenizers(
    settings: TokenizerConfig, corpus: Corpus, split: str, seed: int, tags: Sequence[str] = ()
) -> TokenizerPair:
    """Learns one vocabulary or two from at most ``settings.training_sentences`` pairs sampled over a whole split.

    ``bpe`` and ``unigram`` have exactly ``settings.vocabulary_size`` ids, and each of ``tags`` as one piece of the source
    vocabulary; ``word`` and ``character`` have at most that many ids. Raises ConfigError, with the possible sizes, when the
    text does not support the size, and DataError when a side of the sample has no text.
    """
    sample = sample_examples(corpus.pairs(split), settings.training_sentences, seed)
    sides = {"source": [pair.source for pair in sample], "target": [pair.target for pair in sample]}
    for side, sentences in sides.items():
        if not any(map(str.strip, sentences)):
            raise DataError(f"split {split!r}: no {side} sentence with any text to train the tokenizer on")
    if settings.joint:
        joint = train_tokenizer(settings, sides["source"] + sides["target"], tags)
        return TokenizerPair(joint, joint)
    separate = []
    for side, sentences in sides.items():
        try:
            separate.append(train_tokenizer(settings, sentences, tags if side == "source" else ()))
        except ConfigError as error:
            raise ConfigError(f"{error} (the {side} side alone, since tokenizer.joint=False)") from None
    return TokenizerPair(*separate)


def train_text_tokenizer(settings: TokenizerConfig, source: DocumentSource, split: str, seed: int) -> Tokenizer:
    """Learns a vocabulary from at most ``settings.training_sentences`` documents sampled over a whole split.

    Raises ConfigError, with the possible sizes, when the text does not support ``settings.vocabulary_size``, and DataError when
    there is no text.
    """
    if settings.kind == "byte":
        return ByteTokenizer()
    texts = (document.text for document in source.documents(split))
    sample = sample_examples(texts, settings.training_sentences, seed)
    if not any(map(str.strip, sample)):
        raise DataError(f"split {split!r}: no document with any text to train the tokenizer on")
    return train_tokenizer(settings, sample)


def train_tokenizer(settings: TokenizerConfig, sentences: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """Learns one vocabulary; raises ConfigError as ``train_tokenizers`` does, and for the kind of imported models."""
    if settings.kind == "byte":
        return ByteTokenizer()
    if settings.kind in _LISTED:
        return _LISTED[settings.kind].train(sentences, settings.vocabulary_size)
    if settings.kind not in SUBWORD_KINDS:
        problem = f"{settings.kind} comes with an imported model; adopt it with --config.init.run=RUN"
        raise ConfigError(f"tokenizer.kind: {problem}")
    coverage = settings.character_coverage
    if not coverage:
        coverage = 0.9995 if side_text(sentences[:: len(sentences) // SAMPLED + 1]).has_many_characters else 1.0
    return train_subword_tokenizer(settings.kind, sentences, settings.vocabulary_size, coverage, tags)


def train_supported(settings: TokenizerConfig, sentences: Sequence[str]) -> Tokenizer:
    """As ``train_tokenizer``, but learns fewer pieces where the sentences support fewer than ``settings.vocabulary_size``."""
    try:
        return train_tokenizer(settings, sentences)
    except TooManyPieces as error:
        return train_tokenizer(replace(settings, vocabulary_size=error.supported), sentences)


def too_many_pieces(tokenizers: TokenizerPair, pairs: Sequence[SentencePair], languages: tuple[str, str]) -> list[str]:
    """A warning for each side with over four subwords a word, or 1.5 a character in text without spaces."""
    found = []
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
    for language, sentences, tokenizer in zip(languages, texts, tokenizers, strict=True):
        if tokenizer.kind not in SUBWORD_KINDS:
            continue
        side = side_text(sentences)
        pieces = sum(map(len, tokenizer.encode_batch(sentences, num_threads=1)))
        unit, number = ("word", side.words) if side.is_spaced else ("character", side.characters.total())
        ratio = pieces / max(number, 1)
        if ratio > (MAX_PIECES_A_WORD if side.is_spaced else MAX_PIECES_A_CHARACTER):
            found.append(
                f"WARNING: {ratio:.1f} pieces a {unit} of {language}: a vocabulary of {tokenizer.vocabulary_size:,} spells "
                "it in letters or bytes; raise tokenizer.vocabulary_size"
            )
    return found


def tokenizer_from_bytes(kind: str, data: bytes) -> Tokenizer:
    """The tokenizer with this ``kind`` and ``to_bytes()``; raises DataError if ``data`` is something else."""
    if kind in _OWN_LOADERS:
        return _OWN_LOADERS[kind](data)
    if kind not in _LISTED:
        raise DataError(f"unknown kind of tokenizer {kind!r}; known are {', '.join((*_OWN_LOADERS, *_LISTED))}")
    return _LISTED[kind].from_bytes(data)


def tokenizer_files(pair: TokenizerPair) -> dict[str, bytes]:
    """Files by name: ``tokenizer.json`` (kinds, sizes, special ids, digests) and one vocabulary for each tokenizer."""
    roles = {"joint": pair.source} if pair.source is pair.target else {"source": pair.source, "target": pair.target}
    entries, files = {}, {}
    for role, tokenizer in roles.items():
        ending = "model" if tokenizer.kind in SUBWORD_KINDS else "json"
        name, data = f"tokenizer.{role}.{ending}", tokenizer.to_bytes()
        files[name] = data
        size, digest = tokenizer.vocabulary_size, hashlib.sha256(data).hexdigest()
        entries[role] = {"kind": tokenizer.kind, "file": name, "vocabulary_size": size, "sha256": digest}
    description = {"format_version": FORMAT_VERSION, "special_ids": _SPECIAL_IDS, "tokenizers": entries}
    # Last: it exists only after the files that it describes.
    return files | {DESCRIPTION_FILE: json.dumps(description, indent=2).encode() + b"\n"}


def save_tokenizers(pair: TokenizerPair, directory: str | os.PathLike[str]) -> None:
    """Writes ``tokenizer_files`` to a folder."""
    for name, data in tokenizer_files(pair).items():
        write_whole(Path(directory) / name, data)


def load_tokenizers(directory: str | os.PathLike[str]) -> TokenizerPair:
    """Reads the files of ``save_tokenizers``; raises DataError, with the file, when one is missing or damaged."""
    path = Path(directory) / DESCRIPTION_FILE
    content, stored = _read(path), {}
    try:
        description = parse_json(content)
        version, special_ids = description["format_version"], description["special_ids"]
        for role, entry in description["tokenizers"].items():
            stored[role] = entry["kind"], entry["file"], entry["sha256"]
        # No other file that a description names is opened.
        is_sound = all(name in TOKENIZER_FILES for _, name, _ in stored.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        is_sound = False
    if not is_sound:
        raise DataError(f"{path}: not the description of a tokenizer")
    if version != FORMAT_VERSION or special_ids != _SPECIAL_IDS:
        problem = f"format {version} with special ids {special_ids}"
        raise DataError(f"{path}: {problem}; this version reads format {FORMAT_VERSION} with {_SPECIAL_IDS}")
    if stored.keys() not in ({"joint"}, {"source", "target"}):
        raise DataError(f"{path}: describes {sorted(stored)}; expected joint, or source and target")
    loaded = {}
    for role, (kind, name, sha256) in stored.items():
        data = _read(path.parent / name)
        if hashlib.sha256(data).hexdigest() != sha256:
            problem = f"the content is not what {DESCRIPTION_FILE} describes; copy the run's tokenizer again"
            raise DataError(f"{path.parent / name}: {problem}")
        loaded[role] = tokenizer_from_bytes(str(kind), data)
    return TokenizerPair(*(loaded.get(role) or loaded["joint"] for role in ("source", "target")))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read this file of a saved tokenizer: {error.strerror or error}") from None
