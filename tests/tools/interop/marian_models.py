"""Marian models as transformers makes them, with the special ids of OPUS-MT: EOS 0, UNK 1, PAD last, which begins decoding."""

import json
from pathlib import Path

from libraries import library
from tools.interop.small_models import tokenizers_of

from transformer_jax.array_types import NUM_SPECIAL_IDS

torch, transformers = library("torch", "export"), library("transformers", "export")

SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
OF_OPUS = {"activation_function": "swish", "scale_embedding": True}


def save_marian(folder: Path, **settings: object) -> None:
    """Saved by the library's own ``save_pretrained``, with random biases."""
    tokenizer = tokenizers_of(Path("unused")).source
    pieces = tokenizer.pieces(range(NUM_SPECIAL_IDS, tokenizer.vocabulary_size))
    vocabulary = ["</s>", "<unk>", *pieces, "<pad>"]
    pad = len(vocabulary) - 1
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
    torch.manual_seed(0)
    config = transformers.MarianConfig(vocab_size=len(vocabulary), **special, **(SIZES | OF_OPUS | settings))
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, each in [*model.named_parameters(), ("final_logits_bias", model.final_logits_bias)]:
            if "embed_positions" not in name:
                each.add_(torch.randn(each.shape) * 0.2)
        model.get_decoder().embed_tokens.weight[pad] = 0
    model.eval().save_pretrained(folder)
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(tokenizer.to_bytes())
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    (folder / "tokenizer_config.json").write_text('{"source_lang": "eng", "target_lang": "deu"}')
