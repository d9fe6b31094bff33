"""The other side of the training benchmark: packed sentences are to it what they are alone."""

import numpy as np
from libraries import library

from transformer_jax.array_types import BOS_ID
from transformer_jax.config import TransformerConfig

torch = library("torch")


def test_packed_sentences_do_not_see_each_other(benchmark_module):
    module = benchmark_module("torch_transformer")
    config = TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=24, num_heads=2)
    torch.manual_seed(0)
    model = module.TorchTransformer(config, 20, 9).eval()
    sources, targets = ([4, 5, 2], [6, 2]), ([7, 8, 9, 2], [10, 11, 2])
    alone = [
        model(torch.tensor([source]), torch.tensor([[BOS_ID, *target[:-1]]]))
        for source, target in zip(sources, targets, strict=True)
    ]

    def packed(sentences):
        segments = [number for number, sentence in enumerate(sentences, start=1) for _ in sentence]
        positions = [place for sentence in sentences for place in range(len(sentence))]
        return torch.tensor([[*segments, 0]]), torch.tensor([[*positions, 0]])

    (source_segments, source_positions), (target_segments, target_positions) = packed(sources), packed(targets)
    found = model(
        torch.tensor([[*sources[0], *sources[1], 0]]),
        torch.tensor([[BOS_ID, *targets[0][:-1], BOS_ID, *targets[1][:-1], 0]]),
        module.Packing(source_segments, target_segments, source_positions, target_positions),
    )
    assert torch.isfinite(found).all()
    expected = torch.cat(alone, dim=1)
    np.testing.assert_allclose(found[:, :-1].detach(), expected.detach(), atol=1e-5)
