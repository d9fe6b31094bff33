"""Sweeps that the tests try."""

from transformer_jax.sweeps.definition import Sweep
from transformer_jax.sweeps.ranges import Choice, Integers, LogUniform

GRID = Sweep(config="configs/quickstart.py", rows={"a": {}, "b": {"model.d_ff": 64}}, seeds=(3, 4))
SEARCH = Sweep(
    config="configs/quickstart.py",
    space={
        "optimizer.learning_rate": LogUniform(1e-4, 1e-2),
        "model.num_encoder_layers": Integers(1, 3),
        "model.dropout": Choice(0.0, 0.1),
    },
    sampler="tpe",
    pruner="median",
    trials=5,
    metric="validation/loss",
)
