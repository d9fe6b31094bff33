"""Text to token ids and back: subword, word, character and byte tokenizers behind one interface."""

from transformer_jax.data.tokenizers.files import TOKENIZER_FILES as TOKENIZER_FILES
from transformer_jax.data.tokenizers.files import load_tokenizers as load_tokenizers
from transformer_jax.data.tokenizers.files import save_tokenizers as save_tokenizers
from transformer_jax.data.tokenizers.files import tokenizer_files as tokenizer_files
from transformer_jax.data.tokenizers.files import tokenizer_from_bytes as tokenizer_from_bytes
from transformer_jax.data.tokenizers.tokenizer_interface import Tokenizer as Tokenizer
from transformer_jax.data.tokenizers.tokenizer_interface import TokenizerPair as TokenizerPair
