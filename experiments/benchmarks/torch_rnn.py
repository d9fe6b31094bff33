"""Recurrent encoder-decoders written plainly around ``torch.nn.LSTM`` and ``torch.nn.GRU``."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_jax.array_types import PAD_ID
from transformer_jax.config import RnnConfig


class TorchRnn(nn.Module):
    """One bidirectional layer, a bridge, one decoder layer: Luong's wiring without input feeding,
    or Bahdanau's.

    Luong's decoder is one call of ``nn.LSTM`` and its attention one batched product; Bahdanau's
    attends before every step, so it is a loop over time around ``nn.GRUCell``.
    """

    def __init__(self, config: RnnConfig, vocabulary_size: int) -> None:
        super().__init__()
        hidden, memory, embedding = config.d_hidden, config.d_memory, config.d_embedding
        self.config = config
        layer = nn.LSTM if config.cell == "lstm" else nn.GRU
        self.source_embedding = nn.Embedding(vocabulary_size, embedding)
        self.target_embedding = nn.Embedding(vocabulary_size, embedding)
        self.embedding_dropout, self.output_dropout = nn.Dropout(config.embedding_dropout), nn.Dropout(config.dropout)
        self.encoder = layer(embedding, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(memory, hidden * (2 if config.cell == "lstm" else 1))
        if config.wiring == "luong":
            self.decoder: nn.Module = layer(embedding, hidden, batch_first=True)
            self.score = nn.Linear(hidden, memory, bias=False)
            self.combine = nn.Linear(memory + hidden, hidden, bias=False)
        else:
            self.decoder = nn.GRUCell(embedding + memory, hidden)
            self.query = nn.Linear(hidden, config.d_attention, bias=False)
            self.keys = nn.Linear(memory, config.d_attention, bias=False)
            self.vector = nn.Linear(config.d_attention, 1, bias=False)
            self.readout = nn.Linear(hidden + embedding + memory, 2 * config.d_output, bias=False)
        self.projection = nn.Linear(config.d_output, vocabulary_size, bias=False)

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Logits [B, T, V] for token ids [B, S] and decoder inputs [B, T]."""
        padding = source == PAD_ID
        lengths = (~padding).sum(1).clamp(min=1)
        embedded = self.embedding_dropout(self.source_embedding(source))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.encoder(packed)
        memory = pad_packed_sequence(outputs, batch_first=True, total_length=source.shape[1])[0]
        top = last[0] if self.config.cell == "lstm" else last
        start = torch.tanh(self.bridge(torch.cat([top[0], top[1]], dim=-1)))
        target = self.embedding_dropout(self.target_embedding(inputs))
        wiring = self._luong if self.config.wiring == "luong" else self._bahdanau
        return self.projection(self.output_dropout(wiring(target, start, memory, padding)))

    def _luong(
        self, target: torch.Tensor, start: torch.Tensor, memory: torch.Tensor, padding: torch.Tensor
    ) -> torch.Tensor:
        hidden, cell = (half.unsqueeze(0).contiguous() for half in start.chunk(2, dim=-1))
        top, _ = self.decoder(target, (hidden, cell))
        scores = self.score(top) @ memory.transpose(1, 2)
        weights = scores.masked_fill(padding[:, None], -1e9).softmax(-1)
        return torch.tanh(self.combine(torch.cat([weights @ memory, top], dim=-1)))

    def _bahdanau(
        self, target: torch.Tensor, state: torch.Tensor, memory: torch.Tensor, padding: torch.Tensor
    ) -> torch.Tensor:
        keys, left = self.keys(memory), []
        for embedded in target.unbind(1):
            scores = self.vector(torch.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
            weights = scores.masked_fill(padding, -1e9).softmax(-1)
            context = (weights[:, None] @ memory).squeeze(1)
            left.append(torch.cat([state, embedded, context], dim=-1))
            state = self.decoder(torch.cat([embedded, context], dim=-1), state)
        return self.readout(torch.stack(left, dim=1)).unflatten(-1, (-1, 2)).amax(-1)
