"""Export of translation models to CTranslate2 (https://github.com/OpenNMT/CTranslate2).

Its models are the encoder-decoder of Vaswani et al. 2017. Matrices are [out, in]. Self-attention
fuses query, key and value, and cross-attention key and value. The length penalty divides by
length^alpha (not equation 14 of Wu et al. 2016), so beam search ranks slightly differently, and
greedy decoding is the same. A bias suppresses PAD and BOS, which search here never chooses, so that
probabilities are over all other tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.array_types import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_jax.config import DataError, TransformerConfig
from transformer_jax.data.tokenizers import tokenizer_files
from transformer_jax.files.atomic_files import write_whole
from transformer_jax.layers.positions import fairseq_table, sinusoid_table
from transformer_jax.tools.interop.marian import sentencepiece_model
from transformer_jax.tools.interop.matrix_layout import as_matrices, tables
from transformer_jax.tools.interop.models import Example, OpenedModel, require_plain_transformer
from transformer_jax.tools.interop.parity import Counterpart, Tolerance, require_same_tokenizers
from transformer_jax.tools.interop.weight_files import needing, read_object

SINUSOIDS = {"sinusoidal": sinusoid_table, "fairseq": fairseq_table}
# Rows of the sinusoid table. The runtime refuses longer sequences.
POSITIONS = 4096
# Logit of PAD and BOS, in the range of float16.
SUPPRESSED_LOGIT = np.float32(-1e4)
# jax.nn.gelu is the approximation with tanh (Hendrycks and Gimpel 2016).
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELUTanh",
    "exact_gelu": "GELU",
    "silu": "SWISH",
    "geglu": "GELUTanh",
    "swiglu": "SWISH",
}
# Differences of a token's log-probability that rounded weights explain. Measured maximum and mean:
# 0.13 and 0.010 with int8, 0.04 and 0.022 with int8 at base size, 0.004 and 0.0006 with float16.
# With int8 the maximum over many tokens has outliers, so the mean decides. A source without EOS or
# another norm epsilon exceeds these bounds.
TOLERANCES = {
    "float32": Tolerance(1e-4, 1e-5),
    "float16": Tolerance(1e-2, 2e-3, greedy=0.9),
    "int8": Tolerance(0.5, 0.03, greedy=0.6),
}
Matrices = Mapping[str, np.ndarray]


def export(model: OpenedModel, folder: Path, *, quantization: str = "float32") -> None:
    """Write a model directory with tokenizer files.

    Raises ConfigError for a setting that the runtime does not support.
    """
    choices = {"feed_forward": ACTIVATIONS, "positions": (*SINUSOIDS, "learned")}
    require_plain_transformer(model, "ctranslate2", "is not supported by CTranslate2", choices)
    with needing("ctranslate2"):
        from ctranslate2 import specs
    config: TransformerConfig = model.config.model
    spec = specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.normalization == "pre",
        activation=getattr(specs.Activation, ACTIVATIONS[config.feed_forward]),
        alignment_layer=-1,
        alignment_heads=0,
        ffn_glu="decoder_layers_0/feed_forward/gate_kernel" in model.arrays,
    )
    # The quantizer modifies the arrays.
    matrices = {name: np.array(leaf) for name, leaf in as_matrices(model.arrays).items()}
    _set_stack(spec.encoder, "encoder", matrices, config)
    _set_stack(spec.decoder, "decoder", matrices, config)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight, projection = tables(matrices, config)
    spec.decoder.projection.weight = projection
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.embedding == "scaled"
    bias = matrices.get("projection/logits_bias", np.zeros(len(projection), np.float32))
    bias[[PAD_ID, BOS_ID]] = SUPPRESSED_LOGIT
    spec.decoder.projection.bias = np.maximum(bias, SUPPRESSED_LOGIT)
    source, target = (tokenizer.pieces(range(tokenizer.vocabulary_size)) for tokenizer in model.tokenizers)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = target[EOS_ID], target[UNK_ID]
    spec.config.add_source_eos = True
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


def _set_stack(spec: Any, side: str, matrices: Matrices, config: TransformerConfig) -> None:
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


class CTranslate2Counterpart(Counterpart):
    """A model directory, run on the CPU in its precision. Compares log-probabilities."""

    compares_logits = False

    def __init__(self, folder: Path, model: OpenedModel) -> None:
        path = folder / "config.json"
        quantization = read_object(path).get("quantization")
        if quantization not in TOLERANCES:
            names = ", ".join(TOLERANCES)
            raise DataError(f"{path}: quantization={quantization!r} is not one of {names}; export the model again")
        require_same_tokenizers(folder, model)
        self._source, self._target = model.tokenizers
        with needing("ctranslate2"):
            from ctranslate2 import Translator
        try:
            self._translator = Translator(str(folder), device="cpu")
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"{folder}: not a complete CTranslate2 model: {error}; export it again") from None
        self.name = f"CTranslate2 {quantization}"
        self.tolerance = TOLERANCES[quantization]
        self.longest = model.config.model.longest_sequence or POSITIONS
        pieces = self._target.pieces(range(self._target.vocabulary_size))
        self._ids = {piece: number for number, piece in enumerate(pieces)}

    def outputs(self, examples: Sequence[Example]) -> list[np.ndarray]:
        sources = [self._source.pieces(example.source[:-1]) for example in examples]
        targets = [self._target.pieces(example.target[:-1]) for example in examples]
        scored = self._translator.score_batch(sources, targets, max_input_length=0)
        return [np.asarray(result.log_probs, np.float32) for result in scored]

    def greedy(self, sources: Sequence[list[int]], longest: int) -> list[list[int]]:
        pieces = [self._source.pieces(source[:-1]) for source in sources]
        # Tokens that begin every translation of the run, such as a language token.
        prefix = self._target.pieces(self._target.encode(""))
        results = self._translator.translate_batch(
            pieces,
            target_prefix=[prefix] * len(pieces) if prefix else None,
            beam_size=1,
            min_decoding_length=0,
            max_input_length=0,
            max_decoding_length=longest,
            max_batch_size=32,
        )
        return [[self._ids.get(piece, UNK_ID) for piece in result.hypotheses[0]] for result in results]


open_counterpart = CTranslate2Counterpart
