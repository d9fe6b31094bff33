"""Checkpoints of fairseq, against FSMT of transformers, which computes what fairseq does."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from libraries import library
from tools.interop.small_models import THEIRS

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.interop import fairseq
from transformer_jax.tools.interop.fairseq_family import vocabulary_order
from transformer_jax.tools.interop.models import Example

torch, transformers = library("torch", "export"), library("transformers", "export")

WORDS = [f"w{n}" for n in range(30)]
SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2, "normalize_before": False}
SETTINGS = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
SETTINGS |= {"source_lang": "en", "target_lang": "de", "encoder_layers": 2, "decoder_layers": 1}


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    config = transformers.FSMTConfig(src_vocab_size=34, tgt_vocab_size=34, tie_word_embeddings=True, **THEIRS)
    model = transformers.FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, each in model.named_parameters():
            if "embed_positions" not in name:
                each.add_(torch.randn(each.shape) * 0.2)
    return model


def write_checkpoint(folder, theirs, *, is_old=False, settings=(), **content):
    state = {name.removeprefix("model."): leaf.clone() for name, leaf in theirs.state_dict().items()}
    state = {name: leaf for name, leaf in state.items() if "embed_positions" not in name}
    state |= {f"{side}.embed_positions._float_tensor": torch.ones(1) for side in ("encoder", "decoder")}
    if is_old:
        for name in [name for name in state if "self_attn.q_proj" in name]:
            parts = [state.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            state[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        for name in [name for name in state if name.startswith("encoder") and "final_layer_norm" in name]:
            state[name.replace("final_layer_norm", "layer_norms.1")] = state.pop(name)
    torch.save({"args": Namespace(**(SETTINGS | dict(settings))), "model": state} | content, folder / "model.pt")
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} {9 - n % 9}\n" for n, word in enumerate(WORDS)))
    (folder / "bpecodes").write_text("#version: 0.2\n" + "".join(f"w {digit}</w>\n" for digit in range(10)))


@pytest.mark.parametrize("is_old", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_logits_are_theirs(is_old, theirs, tmp_path):
    write_checkpoint(tmp_path, theirs, is_old=is_old)
    model = fairseq.read(tmp_path).opened()
    examples = [Example([9, 8, 7, 6, 2], [20, 12, 2]), Example([5, 2], [7, 8, 9, 10, 11, 12, 2])]
    order = vocabulary_order(34, **fairseq.SPECIAL_IDS)
    for example, ours in zip(examples, model.logits(examples), strict=True):
        source, target = (order.to_theirs(ids) for ids in (example.source, [1, *example.target[:-1]]))
        assert target[0] == 2
        with torch.inference_mode():
            found = theirs(torch.tensor([source]), decoder_input_ids=torch.tensor([target]), use_cache=False)
        expected = order.logits(found.logits[0].numpy())
        # PAD is never chosen, nor BOS, which is their EOS a second time.
        np.testing.assert_allclose(ours[:, 2:], expected[:, 2:], atol=1e-5)
        assert ours[:, 1].max() < -1e8


UNREADABLE = {
    "encoder_learned_pos=True is not supported": {"settings": {"encoder_learned_pos": True}},
    "tensors are missing: decoder.layers.1": {"settings": {"decoder_layers": 2}},
    "has other objects than tensors, which are not loaded": {"cfg": Path("x")},
    "no settings: neither args, nor cfg": {"args": None},
    "no settings: neither": {"args": None, "cfg": {"model": None}},
    "model.pt: settings: source_lang=None is not of type str": {"settings": {"source_lang": None}},
    "'encoder.embed_tokens.weight' is not a dense tensor": {"model": {"encoder.embed_tokens.weight": 3}},
}


@pytest.mark.parametrize("problem", UNREADABLE)
def test_a_checkpoint_that_cannot_be_read_is_named(problem, theirs, tmp_path):
    write_checkpoint(tmp_path, theirs, **UNREADABLE[problem])
    with pytest.raises((ConfigError, DataError), match=problem):
        fairseq.read(tmp_path)


def test_files_that_cannot_be_read_are_named(theirs, tmp_path):
    with pytest.raises(DataError, match="expected one checkpoint, .* found none"):
        fairseq.read(tmp_path)
    write_checkpoint(tmp_path, theirs)
    with pytest.raises(DataError, match="in_proj_weight: 4 rows do not split into queries, keys and values"):
        fairseq.current_names({"encoder.layers.0.self_attn.in_proj_weight": np.ones((4, 2))})
    codes = (tmp_path / "bpecodes").read_text()
    for name, content, problem in (
        ("model.pt", (tmp_path / "model.pt").read_bytes()[:-100], "model.pt: damaged"),
        ("bpecodes", codes.replace("0.2", "0.1").encode(), "bpecodes, line 1: '#version: 0.1'"),
        ("bpecodes", b"l o\nlow </w>\n", "bpecodes, line 2: 'low </w>': a separate end of word"),
        ("dict.de.txt", b"a b c\n", "dict.de.txt, line 1: expected a token and its count"),
        ("dict.de.txt", b"a 1\n", "the target table has 34 rows for a vocabulary of 5 pieces"),
    ):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=problem):
            fairseq.read(tmp_path)
        (tmp_path / name).write_bytes(before)


def test_only_spaces_separate_tokens(tmp_path):
    (tmp_path / "dict.de.txt").write_text("\u3000a 7\n", encoding="utf-8")
    (tmp_path / "codes").write_text("#version: 0.2\n\u00a0 a</w>\n\nb\u2009 c 12\n", encoding="utf-8")
    assert fairseq._dictionary(tmp_path / "dict.de.txt")[4:] == ["\u3000a"]
    assert fairseq._merges(tmp_path / "codes") == [("\u00a0", "a</w>"), ("b\u2009", "c")]
