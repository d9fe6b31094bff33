"""The model of the paper around ``torch.nn.Transformer``."""

from typing import NamedTuple

import torch
from torch import nn

from transformer_jax.array_types import PAD_ID
from transformer_jax.config import TransformerConfig
from transformer_jax.layers.normalization import EPSILON
from transformer_jax.layers.positions import sinusoid_table


class Packing(NamedTuple):
    """Which sentence of its row a token belongs to (0: none), and its place in the sentence; [B, S]
    and [B, T]."""

    source_segments: torch.Tensor
    target_segments: torch.Tensor
    source_positions: torch.Tensor
    target_positions: torch.Tensor


class TorchTransformer(nn.Module):
    """``torch.nn.Transformer``, post-norm, between one matrix that embeds both sides and gives the
    logits.

    Dropout is where the paper has it: on the output of every sublayer and on the sums of embeddings
    and positions. The norms that ``nn.Transformer`` adds after the last layers are left out. The
    attention projections keep their biases (``bias=False`` would take all others away too); they
    cost it well under one per cent.
    """

    def __init__(self, config: TransformerConfig, vocabulary_size: int, longest: int) -> None:
        super().__init__()
        d_model = config.d_model
        settings = {"d_model": d_model, "nhead": config.num_heads, "dim_feedforward": config.d_ff}
        settings |= {"dropout": config.dropout, "batch_first": True, "layer_norm_eps": EPSILON}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**settings), config.num_encoder_layers, norm=None, enable_nested_tensor=False
        )
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**settings), config.num_decoder_layers, norm=None)
        self.transformer = nn.Transformer(**settings, custom_encoder=encoder, custom_decoder=decoder)
        for layer in [*encoder.layers, *decoder.layers]:
            layer.dropout = nn.Identity()
            for attention in (layer.self_attn, getattr(layer, "multihead_attn", layer.self_attn)):
                attention.dropout = config.attention_dropout
        for parameter in self.transformer.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.embedding = nn.Embedding(vocabulary_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.register_buffer("positions", torch.tensor(sinusoid_table(longest, d_model)))
        self.register_buffer("unseen", torch.triu(torch.ones(longest, longest, dtype=torch.bool), 1))
        self.scale = d_model**0.5

    def forward(self, source: torch.Tensor, inputs: torch.Tensor, packing: "Packing | None" = None) -> torch.Tensor:
        """Logits [B, T, V] for token ids [B, S] and decoder inputs [B, T]; ``packing`` where a row
        holds several sentences.

        Without it the decoder needs no padding mask: padding is on the right, where no real
        position looks, and without one torch may take its fastest causal attention.
        """
        if packing:
            return self._forward_packed(source, inputs, packing)
        padding = source == PAD_ID
        # A row that is all padding would have nothing to attend to, and NaN as its softmax.
        padding = padding & ~padding.all(dim=1, keepdim=True)
        length = inputs.shape[1]
        hidden = self.transformer(
            self._embed(source),
            self._embed(inputs),
            tgt_mask=self.unseen[:length, :length],
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return nn.functional.linear(hidden, self.embedding.weight)

    def _forward_packed(self, source: torch.Tensor, inputs: torch.Tensor, packing: "Packing") -> torch.Tensor:
        length = inputs.shape[1]
        hidden = self.transformer(
            self._embed(source, packing.source_positions),
            self._embed(inputs, packing.target_positions),
            src_mask=self._apart(packing.source_segments, packing.source_segments),
            tgt_mask=self._apart(packing.target_segments, packing.target_segments) | self.unseen[:length, :length],
            memory_mask=self._apart(packing.target_segments, packing.source_segments),
        )
        return nn.functional.linear(hidden, self.embedding.weight)

    def _apart(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Which keys a query must not see [B * H, Q, M]: other sentences. Padding sees all: without
        keys softmax is NaN."""
        apart = (queries[:, :, None] != keys[:, None, :]) & (queries != 0)[:, :, None]
        return apart.repeat_interleave(self.transformer.nhead, dim=0)

    def _embed(self, ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        places = self.positions[: ids.shape[1]] if positions is None else self.positions[positions]
        return self.embedding_dropout(self.embedding(ids) * self.scale + places)
