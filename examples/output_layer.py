"""An output layer: a kernel before the embeddings, and a learned inverse temperature.

transformer-jax train --plugin=examples/output_layer.py --config=quickstart \
    --config.model.projection=tempered --workdir=runs/tempered
"""

import flax.linen as nn
import jax.numpy as jnp
from jax.tree_util import Partial

import transformer_jax
from transformer_jax.layers.embedding import Projection
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import einsum


@transformer_jax.register("projection", "tempered")
class Tempered(Projection):
    """s E (W h), with a kernel W and a factor s."""

    def setup(self):
        width = self.config.d_model
        self.kernel = self.param("readout_kernel", xavier_uniform(0, 1), (width, width))
        self.sharpness = self.param("sharpness", nn.initializers.ones, ())

    def factors(self, hidden):
        before = einsum("BLD,DE->BLE", hidden, self.kernel, self.precision)
        return self.embedding.factors(before)._replace(logit_mod=Partial(jnp.multiply, self.sharpness))
