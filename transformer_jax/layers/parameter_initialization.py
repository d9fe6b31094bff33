"""Parameters of layers, and their initial values."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.linen import initializers
from flax.typing import Initializer


class Layer(nn.Module):
    """A module that checks the shapes of its parameters without tracing their initializers."""

    @nn.nowrap
    def param(self, name: str, init_fn: Any, *init_args: Any, **options: Any) -> Any:
        """Return the parameter if it has the expected shape, else let Flax check or create it."""
        parameter: Any = self.get_variable("params", name)
        if parameter is not None and init_args[:1] == (jnp.shape(parameter),):
            return parameter
        return super().param(name, init_fn, *init_args, **options)


def xavier_uniform(
    in_axes: int | Sequence[int], out_axes: int | Sequence[int], batch_axes: Sequence[int] = ()
) -> Initializer:
    """Return Uniform in ±sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, equation 16).

    The fans are the products of the named axes, so that a kernel stored as [D, H, K] starts as the
    matrix [D, H·K] would. ``batch_axes`` number independent kernels. Any other axis multiplies both
    fans: ``xavier_uniform(0, 2)`` of [D, G, N] is smaller by sqrt(G) than for G matrices [D, N].
    """
    return initializers.variance_scaling(
        1.0, "fan_avg", "uniform", in_axis=in_axes, out_axis=out_axes, batch_axis=batch_axes
    )


def embedding_normal(d_model: int) -> Initializer:
    """Return a normal initializer with standard deviation d_model^-1/2.

    Embeddings times sqrt(d_model), and tied logits, start at unit variance.
    """
    return initializers.normal(d_model**-0.5)
