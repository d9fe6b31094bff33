"""The other side: a plain good training loop around a model of PyTorch (eager, or compiled)."""

import contextlib

import numpy as np
import torch
from stopwatch import limit_cores, parse_arguments, time_steps
from torch import nn
from torch_rnn import TorchRnn
from torch_transformer import Packing, TorchTransformer
from workload import LEARNING_RATE

from transformer_jax.array_types import BOS_ID, PAD_ID
from transformer_jax.sequence_types import Batch


def main() -> None:
    """Trains on the recorded batches and writes the times."""
    arguments = parse_arguments(("--compile", {"action": "store_true"}), ("--autocast", {"action": "store_true"}))
    limit_cores(arguments.threads)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config, vocabulary = arguments.workload.config, arguments.workload.vocabulary_size
    device = {"cpu": "cpu", "gpu": "cuda"}[arguments.options.device]
    is_packed = any(tokens.segments.max() > 1 for batch in arguments.workload.batches for tokens in batch)
    longest = max(tokens.ids.shape[1] for batch in arguments.workload.batches for tokens in batch)
    if config.model.kind == "rnn":
        model: nn.Module = TorchRnn(config.model, vocabulary)
    else:
        model = TorchTransformer(config.model, vocabulary, longest)
    model = model.to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, betas=(config.optimizer.b1, config.optimizer.b2), eps=1e-9, fused=True
    )
    forward = torch.compile(model, dynamic=False) if arguments.options.compile else model
    precision = contextlib.nullcontext()
    if arguments.options.autocast:
        precision = torch.autocast(device, torch.bfloat16)

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device).long()

    def step(batch: Batch) -> float:
        source, target = (on_device(tokens.ids) for tokens in batch)
        inputs = nn.functional.pad(target[:, :-1], (1, 0), value=BOS_ID)
        packing = ()
        if is_packed:
            segments = [on_device(tokens.segments) for tokens in batch]
            positions = [on_device(tokens.positions) for tokens in batch]
            inputs = inputs.masked_fill(positions[1] == 0, BOS_ID)
            packing = (Packing(*segments, *positions),)
        with precision:
            logits = forward(source, inputs, *packing)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            target.flatten(),
            ignore_index=PAD_ID,
            label_smoothing=config.training.label_smoothing,
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    time_steps(step, arguments)


if __name__ == "__main__":
    main()
