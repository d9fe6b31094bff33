"""Names and layout of parameters in fairseq, and in the models of transformers that follow it (Marian, M2M-100, FSMT)."""

import re

import numpy as np

PARTS = (
    (r"^(encoder|decoder)_layers_(\d+)/", r"\1.layers.\2."),
    (r"^(encoder|decoder)_norm/", r"\1.layer_norm."),
    (r"self_attention_residual/norm/", "self_attn_layer_norm."),
    (r"cross_attention_residual/norm/", "encoder_attn_layer_norm."),
    (r"feed_forward_residual/norm/", "final_layer_norm."),
    (r"self_attention/", "self_attn."),
    (r"cross_attention/", "encoder_attn."),
    (r"feed_forward/wide_", "fc1."),
    (r"feed_forward/narrow_", "fc2."),
    (r"(q)uery|(k)ey|(v)alue", r"\1\2\3_proj"),
    (r"_attn\.output", "_attn.out_proj"),
    (r"_proj_bias$", "_proj.bias"),
    (r"_proj$", "_proj.weight"),
    (r"kernel$|scale$", "weight"),
)

# Parameters whose axes have the width of the model, in the layout [out, in]: on the last axis, and on the first.
WIDTH_LAST = re.compile(r"(table|attention/(query|key|value)|(wide|gate)_kernel)$")
WIDTH_FIRST = re.compile(r"(attention/output|narrow_kernel|narrow_bias|output_bias|norm/(scale|bias))$")


def fairseq_name(name: str) -> str:
    """``encoder_layers_0/self_attention/query`` is ``encoder.layers.0.self_attn.q_proj.weight``; for parameters of layers."""
    for pattern, replacement in PARTS:
        name = re.sub(pattern, replacement, name)
    return name


def halves(d_model: int) -> np.ndarray:
    """The order 0, 2, 4 ... 1, 3, 5 ..., which turns interleaved sines and cosines into sines followed by cosines."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def reordered_width(name: str, matrix: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A parameter with the width of the model in another order; with all of them reordered the model computes the same."""
    if WIDTH_LAST.search(name):
        return np.ascontiguousarray(matrix[..., order])
    return np.ascontiguousarray(matrix[order]) if WIDTH_FIRST.search(name) else matrix
