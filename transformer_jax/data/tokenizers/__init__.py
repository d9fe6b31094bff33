"""Text to token ids and back: subword, word, character and byte tokenizers behind one interface."""

from transformer_jax.data.tokenizers.interface import Tokenizer, TokenizerPair
from transformer_jax.data.tokenizers.kinds import (
    TOKENIZER_FILES,
    load_tokenizers,
    save_tokenizers,
    tokenizer_files,
    tokenizer_from_bytes,
    too_many_pieces,
    train_supported,
    train_text_tokenizer,
    train_tokenizer,
    train_tokenizers,
)

__all__ = [
    "TOKENIZER_FILES",
    "Tokenizer",
    "TokenizerPair",
    "load_tokenizers",
    "save_tokenizers",
    "tokenizer_files",
    "tokenizer_from_bytes",
    "too_many_pieces",
    "train_supported",
    "train_text_tokenizer",
    "train_tokenizer",
    "train_tokenizers",
]
