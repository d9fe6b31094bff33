"""A split of plain text, tokenized once and kept on disk as memory-mapped arrays."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from transformer_jax.config import DataError, TokenizerConfig
from transformer_jax.config.json_text import parse_json
from transformer_jax.data.cached_stores import memory_map, open_or_build
from transformer_jax.data.documents import Document, DocumentSource
from transformer_jax.data.statistics import SideStatistics
from transformer_jax.data.store_check import StoreCheck
from transformer_jax.data.token_store_builder import DESCRIPTION_FILE, SideWriter, TokenizingProgress
from transformer_jax.data.tokenizers.interface import TRAINERS, Tokenizer, sample_pairs, train_tokenizer
from transformer_jax.data.tokenizers.pair_encoding import CHUNK_CHARACTERS, flattened, id_type

# Part of every key: raise it when the files change their meaning.
FORMAT_VERSION = 1
NAME = "documents"


class DocumentStore:
    """Documents as token ids, an EOS after each; nothing is read into memory before it is asked for.

    Document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``; it and all before it are ``byte_offsets[i + 1]`` bytes of the text.
    Raises ValueError when ``directory`` does not hold a whole store.
    """

    def __init__(self, directory: Path) -> None:
        description = parse_json((directory / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        self.statistics = SideStatistics(**description["statistics"])
        self.num_documents, self.num_bytes = int(description["documents"]), int(description["bytes"])
        self.num_tokens = self.statistics.tokens
        self.ids = memory_map(directory / f"{NAME}.ids", description["id_type"], self.num_tokens)
        self.offsets = memory_map(directory / f"{NAME}.offsets", "int64", self.num_documents + 1)
        self.check = StoreCheck(directory)
        self.byte_offsets = memory_map(directory / f"{NAME}.bytes", "int64", self.num_documents + 1)

    def to_json(self) -> dict[str, object]:
        """The store in numbers."""
        counts = {"documents": self.num_documents, "bytes": self.num_bytes, "tokens": self.num_tokens}
        return counts | {"bytes_per_token": self.num_bytes / self.num_tokens}


def open_document_store(
    source: DocumentSource, split: str, tokenizer: Tokenizer, cache_directory: str
) -> DocumentStore:
    """The store of a split: from the cache if the same text was tokenized the same way before, else built now.

    Memory holds a few million characters and the longest document. Raises DataError when there is no text, and when the cache
    cannot be written.
    """
    identity = [FORMAT_VERSION, split, source.fingerprint(split), tokenizer.fingerprint()]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    readable = re.sub(r"[^\w.-]+", "_", split)[:40]
    write = partial(_write, source, split, tokenizer)
    store = open_or_build(cache_directory, f"document_stores/{readable}-{key}", DocumentStore, write)
    if not store.num_documents:
        raise DataError(f"data: the split {split!r} has no text; give more, or hold out more of it with data.held_out")
    return store


def train_text_tokenizer(config: TokenizerConfig, source: DocumentSource, split: str, seed: int) -> Tokenizer:
    """Learns a vocabulary from at most ``config.training_sentences`` documents sampled over a whole split.

    Raises ConfigError, naming the possible sizes, where the text does not support ``config.vocabulary_size``, and DataError
    when there is no text.
    """
    texts = (document.text for document in source.documents(split))
    if config.kind == "byte":
        return TRAINERS[config.kind]([], 0)
    sample = sample_pairs(texts, config.training_sentences, seed)
    if not any(map(str.strip, sample)):
        raise DataError(f"split {split!r}: no document with any text to train the tokenizer on")
    return train_tokenizer(config, sample)


def _write(source: DocumentSource, split: str, tokenizer: Tokenizer, directory: Path) -> None:
    writer = SideWriter(directory, NAME, tokenizer)
    documents = num_bytes = 0
    try:
        with (
            open(directory / f"{NAME}.bytes", "wb") as byte_offsets,
            TokenizingProgress(split, source.count_bytes(split), unit="bytes") as progress,
        ):
            np.zeros(1, np.int64).tofile(byte_offsets)
            for chunk in _chunks(source.documents(split)):
                encoded = tokenizer.encode_batch([document.text for document in chunk])
                writer.append(flattened(encoded, tokenizer))
                ends = num_bytes + np.cumsum([document.num_bytes for document in chunk], dtype=np.int64)
                ends.tofile(byte_offsets)
                documents += len(chunk)
                progress.advance(int(ends[-1]) - num_bytes)
                num_bytes = int(ends[-1])
    finally:
        statistics = writer.finish()
    description = {"id_type": id_type(tokenizer).name, "documents": documents, "bytes": num_bytes}
    content = description | {"statistics": vars(statistics)}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(content, indent=2), encoding="utf-8")


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Consecutive documents, not many more than ``CHUNK_CHARACTERS`` in total."""
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += len(document.text) + 1
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
