"""Import of M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022) from transformers.

``M2M100ForConditionalGeneration`` is a pre-norm Transformer with the sinusoids of fairseq. The
source begins with the token of its language, and the decoder with EOS and the token of the target
language. A run has one pair of languages, and its tokenizers add these tokens to every text.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_jax.config import ConfigError, DataError
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.subword import MappedSubwordTokenizer
from transformer_jax.tools.interop.fairseq_family import Orders, imported_translation, vocabulary_order
from transformer_jax.tools.interop.marian import layers_and_tables, model_settings, special_ids_of, tables_of
from transformer_jax.tools.interop.models import ImportedModel
from transformer_jax.tools.interop.weight_files import read_bytes, read_object, require_values, value_of

MODEL_TYPE = "m2m_100"
# In the order of their tokens (Fan et al. 2020, table 1).
LANGUAGES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id "
    "ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si "
    "sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
LANGUAGE_TOKEN = re.compile(r"__\w+__|[a-z]{3}_[A-Z][a-z]{3}")


def read(folder: Path, source_language: str = "", target_language: str = "") -> ImportedModel:
    """Read a folder for one pair of languages, such as ``en``, or ``eng_Latn`` for NLLB.

    Raises DataError for a file or tensor that is missing, damaged or unexpected, ConfigError for a
    setting or language that is not supported.
    """
    # The default of M2M-100.
    theirs = {"scale_embedding": True} | read_object(folder / "config.json")
    model = model_settings(theirs, {"model_type": MODEL_TYPE, "pad_token_id": 1}) | {
        "normalization": "pre",
        "positions": "fairseq",
    }
    by_id = pieces_by_id(folder)
    languages = {"source_language": source_language, "target_language": target_language}
    prefixes = [language_token(by_id, language, f"--{flag}") for flag, language in languages.items()]
    state = layers_and_tables(folder)
    try:
        orders = vocabulary_orders(folder, theirs)
        tables = tables_of(state, theirs.get("tie_word_embeddings", True))
        spm, pieces = read_bytes(folder / "sentencepiece.bpe.model"), orders[0].pieces(by_id)
        tokenizers = TokenizerPair(*(MappedSubwordTokenizer(spm, pieces, [prefix]) for prefix in prefixes))
        data = {flag: language.strip("_") for flag, language in languages.items()}
        return imported_translation(model, data, tokenizers, state, tables, orders)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def vocabulary_orders(folder: Path, theirs: Mapping[str, Any]) -> Orders:
    """Return the shared vocabulary, twice. Raise DataError if it exceeds config.json."""
    path = folder / "config.json"
    size = value_of(theirs, "vocab_size", int, path)
    by_id = pieces_by_id(folder)
    if max(by_id) >= size:
        raise DataError(f"{path}: vocab_size={size:,}, but the tokenizer has a piece with id {max(by_id):,}")
    unk = next((number for number, piece in by_id.items() if piece == "<unk>"), None)
    if unk is None:
        raise DataError(f"{folder}: the vocabulary has no <unk>")
    order = vocabulary_order(size, unk=unk, **special_ids_of(theirs, path))
    return order, order


def pieces_by_id(folder: Path) -> dict[int, str]:
    """Return pieces and language tokens, from ``vocab.json`` or from NLLB's ``tokenizer.json``."""
    if not (folder / "vocab.json").is_file():
        path = folder / "tokenizer.json"
        content = read_object(path)
        try:
            added = {token["id"]: token["content"] for token in content["added_tokens"]}
            return {number: piece for piece, number in content["model"]["vocab"].items()} | added
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{path}: has no vocabulary") from None
    by_id = {number: piece for piece, number in read_object(folder / "vocab.json").items()}
    return by_id | dict(enumerate(_listed_languages(folder), start=len(by_id)))


def _listed_languages(folder: Path) -> list[str]:
    """Return language tokens by id, as the folder lists them, else as published."""
    described: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        described |= read_object(folder / name) if (folder / name).is_file() else {}
    listed = [str(token) for token in described.get("additional_special_tokens") or []]
    if tokens := [token for token in listed if LANGUAGE_TOKEN.fullmatch(token)]:
        return tokens
    require_values(described, {"language_codes": "m2m100"}, folder / "tokenizer_config.json")
    return [f"__{code}__" for code in LANGUAGES.split()]


def language_token(by_id: Mapping[int, str], language: str, flag: str) -> str:
    """Return the token of ``language``. Raise ConfigError with the languages if there is none."""
    tokens = [piece for piece in by_id.values() if LANGUAGE_TOKEN.fullmatch(piece)]
    for token in (language, f"__{language}__"):
        if token in tokens:
            return token
    names = ", ".join(sorted(token.strip("_") for token in tokens)[:200])
    raise ConfigError(flag, f"{language!r} is not a language of this model", f"it has {names}")
