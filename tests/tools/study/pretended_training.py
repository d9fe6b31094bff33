"""Sweeps of the tests, and a training that pretends."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformer_jax.config import ExperimentConfig
from transformer_jax.runs.run import Outcome
from transformer_jax.tools.study.sweeps import Choice, Integers, LogUniform, Sweep

GRID = Sweep(config="configs/quickstart.py", rows={"a": {}, "b": {"model.d_ff": 64}}, seeds=(3, 4))
ONE = replace(GRID, rows={"a": {}}, seeds=(3,))
SPACE = {"optimizer.learning_rate": LogUniform(1e-4, 1e-2), "model.num_encoder_layers": Integers(1, 3)}
SEARCH = Sweep(
    config="configs/quickstart.py",
    space=SPACE | {"model.dropout": Choice(0.0, 0.1)},
    sampler="tpe",
    pruner="median",
    trials=5,
    metric="validation/loss",
)


class PretendedTraining:
    """Stands in for ``train_run``: validates after updates 100 and 200 with ``value(config)``;
    ``folders`` are its calls."""

    def __init__(self, value: Callable[[ExperimentConfig], float] = lambda config: 7.5) -> None:
        self.value, self.folders = value, list[str]()
        self.before: Callable[[ExperimentConfig], None] = lambda config: None

    def __call__(self, config: ExperimentConfig, folder: Path, callbacks, is_trial: bool) -> Outcome:
        self.folders.append(folder.name)
        self.before(config)
        folder.mkdir(parents=True, exist_ok=True)
        for step in (100, 200):
            value = self.value(config) - step / 1000
            metrics = {"validation/bleu": value, "validation/chrf": 1.0, "validation/loss": value}
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, **metrics}) + "\n")
            if any(callback.on_validation(step, metrics) for callback in callbacks):
                return Outcome(step, "stopped", None, "")
        return Outcome(200, "finished", None, "")
