"""Simpler simple recurrent unit (Kim et al. 2019, section 3.1)."""

import flax.linen as nn
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Float, Int
from transformer_jax.layers.feed_forward import relu
from transformer_jax.layers.mixer import Mixer, linear_recurrence
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.precision import biased_einsum, einsum
from transformer_jax.registry.plugins import register

register("sharding", r"attention/(forget|candidate)_kernel$")(PartitionSpec("fsdp", "tensor"))
register("sharding", r"attention/forget_bias$")(PartitionSpec("tensor"))


@register("mixer", "ssru")
class SimplerRecurrentUnit(Mixer):
    """f_t = sigmoid(W_f x_t + b_f), c_t = f_t c_{t-1} + (1 - f_t) W x_t, output ReLU(c_t).

    Parameters: ``forget_kernel`` and ``candidate_kernel`` [D, D], ``forget_bias`` [D]. The state c
    is float32.
    """

    def setup(self) -> None:
        shape = self.d_model, self.d_model
        self.forget_kernel = self.param("forget_kernel", xavier_uniform(0, 1), shape)
        self.candidate_kernel = self.param("candidate_kernel", xavier_uniform(0, 1), shape)
        self.forget_bias = self.param("forget_bias", nn.initializers.zeros, (self.d_model,))

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.d_model,)

    def run(self, inputs: Float[Array, "B L D"], segments: Int[Array, "B L"]) -> tuple[Array, Array]:
        states = linear_recurrence(*self._gates(inputs), segments)
        return relu(states.astype(self.precision.output)), states[:, -1]

    def advance(self, inputs: Float[Array, "B W D"], states: Float[Array, "B W D"]) -> tuple[Array, Array]:
        forget, update = self._gates(inputs)
        states = forget * states + update
        return relu(states.astype(self.precision.output)), states

    def _gates(self, inputs: Float[Array, "B L D"]) -> tuple[Float[Array, "B L D"], Float[Array, "B L D"]]:
        """Return f and (1 - f) W x, float32."""
        precision = self.precision.float32_output
        forget = nn.sigmoid(biased_einsum("BLD,DE->BLE", inputs, self.forget_kernel, self.forget_bias, precision))
        return forget, (1.0 - forget) * einsum("BLD,DE->BLE", inputs, self.candidate_kernel, precision)
