"""Figure of a coordinate check: the size of activations after some updates, against the width (Yang et al. 2022, figure 5)."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from transformer_jax.config import ExperimentConfig, MeshConfig, from_dict, hyperparameters_of
from transformer_jax.sequence_types import Tokens
from transformer_jax.tasks.task import objective_of
from transformer_jax.tools.pictures.figures import Subject
from transformer_jax.tools.pictures.panels import LinePanel, draw_panels
from transformer_jax.training.sharding import make_mesh, put_hyperparameters, put_rows
from transformer_jax.training.update import Update

WIDTHS, UPDATES, BASE, HEADS, VOCABULARY = (32, 64, 128, 256), 4, 32, 4, 256
PARAMETRIZATIONS = {"standard": False, "muP": True}
WATCHED = "activation_norms/decoder_layers_1"


def model_of(width: int, is_mup: bool) -> ExperimentConfig:
    """A language model of two layers of this width, whose heads grow with it, trained by Adam at one learning rate."""
    model = {"d_model": width, "d_ff": 4 * width, "num_heads": HEADS, "num_layers": 2, "tying": "none"}
    model |= {"normalization": "pre", "dropout": 0.0, "embedding_dropout": 0.0}
    optimizer = {"name": "adam", "schedule": "constant", "learning_rate": 0.01, "warmup_updates": 1}
    values = {"model": model, "optimizer": optimizer, "training": {"watch": "activation_norms", "num_updates": UPDATES}}
    if is_mup:
        model |= {"initialization": "mup", "attention": "mup"}
        optimizer["name"] = "mup"
        values["parts"] = {"mup": {"base_width": BASE, "base_key_size": BASE // HEADS}}
    return from_dict({"task": "language_model", "tokenizer": {"kind": "byte"}, **values})


def coordinate_sizes(width: int, is_mup: bool) -> np.ndarray:
    """Root mean squares of the output of the last layer before each of ``UPDATES`` updates, all on one random batch."""
    config, mesh = model_of(width, is_mup), make_mesh(MeshConfig(data=1), jax.devices()[:1])
    objective = objective_of(config, mesh)
    update = Update(config, objective.loss, objective.init_params, mesh)
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (8, 16)).astype(np.int32)
    batch, hyperparameters = put_rows(Tokens.from_ids(ids), mesh), put_hyperparameters(hyperparameters_of(config), mesh)
    state, sizes, (name, _, path) = update.initial_state(0), [], WATCHED.partition("/")
    for _ in range(UPDATES):
        state, metrics = update.jitted(state, batch, hyperparameters)
        total, count = metrics.sums.statistics[name][path]
        sizes.append(float(total / count))
    return np.array(sizes)


def draw_coordinate_check(subject: Subject, path: Path, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Draws the sizes against the width, a panel for each update; ``subject`` does not matter."""
    del subject
    sizes = {
        name: np.array([coordinate_sizes(width, is_mup) for width in widths])
        for name, is_mup in PARAMETRIZATIONS.items()
    }
    panels = [
        LinePanel(
            f"After {number} update{'s' * (number > 1)}",
            {name: (widths, found[:, number]) for name, found in sizes.items()},
            "width",
            "root mean square",
            x_scale="log2",
        )
        for number in range(1, UPDATES)
    ]
    draw_panels(panels, path, title="Coordinate check: hidden states after the last layer")
    table = [f"{'':>8}  {'width':>5}  root mean square before update 1 to {UPDATES}"]
    for name, found in sizes.items():
        for width, row in zip(widths, found, strict=True):
            table.append(f"{name:>8}  {width:>5}  {'  '.join(f'{size:.2f}' for size in row)}")
    return table
