"""M2M-100 models as transformers makes them, with the vocabulary of the small models and its hundred languages."""

import json
from pathlib import Path

from libraries import library
from tools.interop.marian_models import SIZES
from tools.interop.small_models import tokenizers_of

from transformer_jax.array_types import NUM_SPECIAL_IDS

torch, transformers = library("torch", "export"), library("transformers", "export")

MADE_UP = 8


def save_m2m(folder: Path, sizes: dict = SIZES) -> None:
    """Model and tokenizer, saved by the library's own ``save_pretrained``, with random biases."""
    tokenizer = tokenizers_of(Path("unused")).source
    pieces = tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (folder / "sentencepiece.bpe.model").write_bytes(tokenizer.to_bytes())
    made = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    made.save_pretrained(folder)
    size = len(vocabulary) + len(made.lang_token_to_id) + MADE_UP
    torch.manual_seed(0)
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(vocab_size=size, **sizes))
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn(each.shape) * 0.2)
    model.eval().save_pretrained(folder)
