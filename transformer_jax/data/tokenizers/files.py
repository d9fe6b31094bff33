"""Files of the tokenizers of a run."""

import hashlib
import json
from pathlib import Path

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import DataError
from transformer_jax.config.data import SUBWORD_KINDS
from transformer_jax.config.tasks import imported
from transformer_jax.data.tokenizers.tokenizer_interface import Tokenizer, TokenizerPair
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.files.json_text import parse_json
from transformer_jax.registry.plugins import registered

FORMAT_VERSION = 1
DESCRIPTION_FILE = "tokenizer.json"
TOKENIZER_FILES = (
    DESCRIPTION_FILE,
    *(f"tokenizer.{role}.{ending}" for role in ("joint", "source", "target") for ending in ("model", "json")),
)
"""All names of ``tokenizer_files``."""
_SPECIAL_IDS = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}
OWN_KINDS = {
    "byte": "transformer_jax.data.tokenizers.listed:ByteTokenizer",
    "mapped": "transformer_jax.data.tokenizers.subword:MappedSubwordTokenizer",
}
"""Classes that are no parts, imported when a file has one."""
LISTED_KINDS = registered("tokenizer", lambda entry: imported(entry) if isinstance(entry, str) else entry)
"""Classes of the registered kinds."""


def tokenizer_from_bytes(kind: str, data: bytes) -> Tokenizer:
    """Return the tokenizer of a ``kind`` and ``to_bytes()``, or raise DataError for others."""
    if kind in SUBWORD_KINDS:
        from transformer_jax.data.tokenizers.subword import SubwordTokenizer

        return SubwordTokenizer(kind, data)
    tokenizer = imported(OWN_KINDS[kind]) if kind in OWN_KINDS else LISTED_KINDS.get(kind)
    if tokenizer is None:
        choices = ", ".join((*SUBWORD_KINDS, *OWN_KINDS, *LISTED_KINDS))
        raise DataError(f"unknown kind of tokenizer {kind!r}; known are {choices}")
    return tokenizer.from_bytes(data)


def tokenizer_files(pair: TokenizerPair) -> dict[str, bytes]:
    """Return files by name: ``tokenizer.json``, and the vocabularies."""
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


def save_tokenizers(pair: TokenizerPair, directory: Path) -> None:
    for name, data in tokenizer_files(pair).items():
        write_whole(directory / name, data)


def load_tokenizers(directory: Path) -> TokenizerPair:
    """Read the files of ``save_tokenizers``, or raise DataError if one is missing or damaged."""
    path = directory / DESCRIPTION_FILE
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
