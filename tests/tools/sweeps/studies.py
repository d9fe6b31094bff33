"""Sweeps that the tests try."""

from transformer_jax.tools.sweeps.definition import Sweep
from transformer_jax.tools.sweeps.ranges import Choice, Integers, LogUniform


def one_by_one(train):
    """What a worker is given, of ``train(config, folder, should_stop)`` that returns how a run ended."""

    def trained(configs, folders, should_stops, on_end):
        endings = [train(*each) for each in zip(configs, folders, should_stops, strict=True)]
        for place, ending in enumerate(endings):
            on_end(place, ending)
        if any(getattr(ending, "reason", "") == "interrupted" for ending in endings):
            raise KeyboardInterrupt

    return trained


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
