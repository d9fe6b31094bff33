"""Translation models for the CTranslate2 runtime (https://github.com/OpenNMT/CTranslate2).

Its models are the encoder-decoder of Vaswani et al. 2017. Matrices are [out, in]; self-attention fuses query, key and value,
cross-attention key and value. Its length penalty divides by length^alpha (not equation 14 of Wu et al. 2016), so beam search
ranks a little differently; greedy decoding is the same. A bias forbids PAD and BOS, which search here never chooses, so that
probabilities are those among all other tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import TransformerConfig
from transformer_jax.data.tokenizers import tokenizer_files
from transformer_jax.models.build import SINUSOIDS
from transformer_jax.runtime.atomic_files import write_whole
from transformer_jax.tools.interop.marian_export import sentencepiece_model
from transformer_jax.tools.interop.matrix_layout import as_matrices, tables
from transformer_jax.tools.interop.needed_library import needing
from transformer_jax.tools.interop.opened_model import OpenedModel, require_plain_transformer

# Rows of the table of sinusoids; the runtime refuses longer sequences.
POSITIONS = 4096
# Of PAD and BOS, which search here never chooses; float16 can hold it.
SUPPRESSED_LOGIT = np.float32(-1e4)
# jax.nn.gelu is the approximation with tanh (Hendrycks and Gimpel 2016).
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELUTanh",
    "exact_gelu": "GELU",
    "silu": "SWISH",
    "gated_gelu": "GELUTanh",
    "gated_silu": "SWISH",
}
Matrices = Mapping[str, np.ndarray]


def export(model: OpenedModel, folder: Path, texts: Sequence[str] = (), *, quantization: str = "float32") -> None:
    """Writes the model directory with its tokenizer files; raises ConfigError naming a setting that the runtime lacks."""
    del texts
    require_expressible(model)
    specs = library().specs
    config = model.config.model
    spec = specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.normalization == "pre",
        activation=getattr(specs.Activation, ACTIVATIONS[config.feed_forward]),
        alignment_layer=-1,
        alignment_heads=0,
        ffn_glu=config.feed_forward.startswith("gated"),
    )
    # Its quantizer writes into the arrays that it is given.
    matrices = {name: np.array(leaf) for name, leaf in as_matrices(model.named).items()}
    _set_stack(spec.encoder, "encoder", matrices, config)
    _set_stack(spec.decoder, "decoder", matrices, config)
    source, target, projection = tables(matrices, config)
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = projection
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.embedding == "scaled"
    bias = matrices.get("projection/logits_bias", np.zeros(len(projection), np.float32))
    bias[[PAD_ID, BOS_ID]] = SUPPRESSED_LOGIT
    spec.decoder.projection.bias = np.maximum(bias, SUPPRESSED_LOGIT)
    _register_vocabularies(spec, model)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.add_attribute("quantization", quantization)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))
    for name, data in tokenizer_files(model.tokenizers).items():
        write_whole(folder / name, data)
    for side, tokenizer in zip(("source", "target"), model.tokenizers, strict=True):
        if tokenizer.kind == "mapped":
            write_whole(folder / f"{side}.spm", sentencepiece_model(tokenizer))


def require_expressible(model: OpenedModel) -> None:
    """Raises ConfigError, naming task or setting, unless the runtime can compute the model."""
    choices = {"feed_forward": ACTIVATIONS, "positions": (*SINUSOIDS, "learned")}
    require_plain_transformer(model, "ctranslate2", "is not supported by CTranslate2", choices)


def longest_sequence(config: TransformerConfig) -> int:
    """The most tokens of a source or a target that the runtime has positions for."""
    return config.longest_sequence or POSITIONS


def library() -> Any:
    """The package ctranslate2; raises ConfigError where it is missing."""
    with needing("ctranslate2"):
        import ctranslate2
    return ctranslate2


def _set_stack(spec: Any, side: str, matrices: Matrices, config: TransformerConfig) -> None:
    """Layers, positions and the last norm of the ``encoder`` or the ``decoder``."""
    for number, layer in enumerate(spec.layer):
        path = f"{side}_layers_{number}"
        _set_attention(layer.self_attention, f"{path}/self_attention", matrices, fused=["query", "key", "value"])
        if side == "decoder":
            _set_attention(layer.attention, f"{path}/cross_attention", matrices, fused=["key", "value"])
        _set_norm(layer.ffn.layer_norm, f"{path}/feed_forward_residual/norm", matrices)
        _set_feed_forward(layer.ffn, f"{path}/feed_forward", matrices)
    if config.normalization == "pre":
        _set_norm(spec.layer_norm, f"{side}_norm", matrices)
    learned = matrices.get(f"{'source' if side == 'encoder' else 'target'}_positions/table")
    spec.position_encodings.encodings = (
        SINUSOIDS[config.positions](POSITIONS, config.d_model) if learned is None else learned
    )


def _set_attention(spec: Any, path: str, matrices: Matrices, fused: list[str]) -> None:
    _set_norm(spec.layer_norm, f"{path}_residual/norm", matrices)
    *queries, together, output = spec.linear
    parts = [(linear, ["query"]) for linear in queries] + [(together, fused), (output, ["output"])]
    for linear, names in parts:
        linear.weight = np.concatenate([matrices[f"{path}/{name}"] for name in names])
        if f"{path}/output_bias" in matrices:
            linear.bias = np.concatenate([matrices[f"{path}/{name}_bias"] for name in names])


def _set_feed_forward(spec: Any, path: str, matrices: Matrices) -> None:
    if gate := f"{path}/gate_kernel" in matrices:
        spec.linear_0_noact.weight = matrices[f"{path}/wide_kernel"]
    spec.linear_0.weight = matrices[f"{path}/{'gate' if gate else 'wide'}_kernel"]
    spec.linear_1.weight = matrices[f"{path}/narrow_kernel"]
    if not gate:
        spec.linear_0.bias, spec.linear_1.bias = matrices[f"{path}/wide_bias"], matrices[f"{path}/narrow_bias"]


def _set_norm(spec: Any, path: str, matrices: Matrices) -> None:
    spec.gamma, spec.beta = matrices[f"{path}/scale"], matrices[f"{path}/bias"]


def _register_vocabularies(spec: Any, model: OpenedModel) -> None:
    source, target = (each.pieces(range(each.vocabulary_size)) for each in model.tokenizers)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = target[EOS_ID], target[UNK_ID]
    spec.config.add_source_eos = True
