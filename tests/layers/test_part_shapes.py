"""A part that returns another shape is an error with its line and both shapes."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from transformer_jax.config import ConfigError, MeshConfig, from_dict
from transformer_jax.layers.mixer import Mixer
from transformer_jax.layers.residual import PreNormResidual
from transformer_jax.registry.plugins import register
from transformer_jax.tasks.task import objective_of
from transformer_jax.training.sharding import make_mesh


class Short(nn.Module):
    """A norm or a feed-forward layer."""

    def __call__(self, x, **options):
        return x[..., 1:]


class ShortPositions(nn.Module):
    def __call__(self, positions, *, length):
        return jnp.zeros((*positions.shape, 1))


class ShortResidual(PreNormResidual):
    def after(self, x, y, *, train):
        return x + y, x


class ShortMixer(Mixer):
    state_shape = (3,)

    def run(self, inputs, segments):
        return inputs, jnp.zeros((len(inputs), 2))


@pytest.mark.parametrize(
    ("setting", "function", "problem"),
    [
        ("norm", Short.__call__, r"Short.__call__ returned \[1, 2, 15\], expected \[B, L, D\] = \[1, 2, 16\]"),
        ("feed_forward", Short.__call__, r"Short.__call__ returned \[1, 2, 15\]"),
        (
            "normalization",
            ShortResidual.after,
            r"ShortResidual.after returned \[\(1, 2, 16\), \(1, 2, 16\)\], expected \[B, L, D\]",
        ),
        ("positions", ShortPositions.__call__, r"ShortPositions.__call__ returned \[1, 2, 1\], expected \[B, L, D\]"),
        ("mixers", ShortMixer.run, r"ShortMixer.run returned \[1, 2\], expected \[B, ...\] = \[1, 3\]"),
    ],
)
def test_a_wrong_shape_is_named(setting, function, problem):
    register("residual", "short")(ShortResidual)
    register("mixer", "short")(ShortMixer)
    register("norm", "short")(lambda settings, config, site, *, precision: Short())
    register("feed_forward", "short")(lambda settings, config, site, *, dropout, precision: Short())
    register("positions", "short")(
        lambda settings, config, site: ShortPositions() if site.kind == "embedding" else None
    )
    model = {"d_model": 16, "d_ff": 8, "num_heads": 2, "num_layers": 1, setting: "short"}
    config = from_dict({"task": "language_model", "tokenizer": {"kind": "byte"}, "model": model})
    objective = objective_of(config, make_mesh(MeshConfig(data=1), jax.devices()[:1]))
    line = inspect.unwrap(function).__code__.co_firstlineno
    with pytest.raises(ConfigError, match=rf"test_part_shapes\.py, line {line}: {problem}"):
        jax.eval_shape(objective.init_params, jax.random.key(0))
