"""Text to token ids and back: subword, word and character tokenizers behind one interface."""

from transformer_jax.data.tokenizers.interface import (
    DESCRIPTION_FILE,
    FORMAT_VERSION,
    SUBWORD_KINDS,
    TOKENIZER_FILES,
    TRAINERS,
    Tokenizer,
    TokenizerPair,
    load_tokenizers,
    sample_pairs,
    save_tokenizers,
    tokenizer_files,
    tokenizer_from_bytes,
    train_tokenizers,
)

__all__ = [
    "DESCRIPTION_FILE",
    "FORMAT_VERSION",
    "SUBWORD_KINDS",
    "TOKENIZER_FILES",
    "TRAINERS",
    "Tokenizer",
    "TokenizerPair",
    "load_tokenizers",
    "sample_pairs",
    "save_tokenizers",
    "tokenizer_files",
    "tokenizer_from_bytes",
    "train_tokenizers",
]
