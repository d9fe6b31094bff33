"""PyTorch's Transformer with weights of a file, in a process: logits, loss and gradients.

python torch_transformer.py INPUT.npz OUTPUT.npz

INPUT has ``source``, ``target`` and ``inputs`` [B, L], ``smoothing``, ``positions`` [L, D],
``epsilon``, and the weights by their names in torch, with the embedding as ``table``. OUTPUT has
``logits``, ``loss``, and the gradients under the same names.
"""

import sys

import numpy as np
import torch

arrays = np.load(sys.argv[1])
source, target, inputs, positions = (
    torch.from_numpy(arrays[name]) for name in ("source", "target", "inputs", "positions")
)
width, d_ff = arrays["encoder.layers.0.linear1.weight"].T.shape
layer = {"d_model": width, "nhead": 4, "dim_feedforward": d_ff, "dropout": 0.0, "batch_first": True}
layer["layer_norm_eps"] = float(arrays["epsilon"])
# Without the norms after the last layers, which torch adds and the paper does not have.
encoder = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(**layer), 2, norm=None, enable_nested_tensor=False
)
decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(**layer), 2, norm=None)
transformer = torch.nn.Transformer(**layer, custom_encoder=encoder, custom_decoder=decoder)
for name, leaf in transformer.named_parameters():
    # The paper's projections have no biases.
    leaf.data = torch.from_numpy(arrays[name]) if name in arrays else torch.zeros_like(leaf)
table = torch.from_numpy(arrays["table"]).requires_grad_()


def embed(ids):
    return table[ids] * width**0.5 + positions[: ids.shape[1]]


hidden = transformer(
    embed(source),
    embed(inputs),
    tgt_mask=torch.triu(torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool), 1),
    src_key_padding_mask=source == 0,
    memory_key_padding_mask=source == 0,
)
logits = hidden @ table.T
loss = torch.nn.functional.cross_entropy(
    logits.flatten(0, 1), target.flatten(), ignore_index=0, label_smoothing=float(arrays["smoothing"])
)
loss.backward()
gradients = {name: leaf.grad for name, leaf in transformer.named_parameters() if name in arrays} | {"table": table.grad}
np.savez(sys.argv[2], logits=logits.detach(), loss=loss.detach(), **gradients)
