"""Mixture of experts: a router sends tokens to a few of many layers (Shazeer et al. 2017)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict
from jax import lax
from jax.sharding import PartitionSpec

from transformer_jax.array_types import Array, Hidden
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.config.checks import setting
from transformer_jax.layers.dropout import Dropout, Rate
from transformer_jax.layers.feed_forward import relu
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.site import Site
from transformer_jax.precision import Precision, einsum
from transformer_jax.registry.index import own_parts
from transformer_jax.registry.plugins import register
from transformer_jax.training.loss_terms import ForcedPass, LossTerm
from transformer_jax.training.state import SOWN

register("sharding", r"router_kernel$")(PartitionSpec("fsdp", None))
register("sharding", r"balance_bias$")(PartitionSpec())
register("sharding", r"experts_wide$")(PartitionSpec("tensor", "fsdp", None))
register("sharding", r"experts_narrow$")(PartitionSpec("tensor", None, "fsdp"))

HIGHEST = lax.Precision.HIGHEST
NO_EXPERTS = "load_balance needs model.feed_forward=mixture_of_experts"


@dataclass(frozen=True)
class ExpertsSettings:
    num_experts: int = setting(8, "Experts of a layer, each of width model.d_ff.")
    experts_per_token: int = setting(2, "Experts that a token is sent to, those with the largest probabilities.")
    balance_bias: bool = setting(False, "The choice adds a bias, which optimizer.after_update=balance_bias adapts.")

    def __post_init__(self) -> None:
        if self.experts_per_token > self.num_experts:
            problem = f"{self.experts_per_token} is more than the {self.num_experts} experts"
            raise ConfigError("parts.mixture_of_experts.experts_per_token", problem)

    def check_new_run(self, config: ExperimentConfig) -> None:
        if self.balance_bias and "balance_bias" not in config.optimizer.after_update_names:
            problem = "stays 0 without optimizer.after_update=balance_bias"
            raise ConfigError("parts.mixture_of_experts.balance_bias", problem, "add balance_bias there")


class Experts(nn.Module):
    """The sum of the top experts, relu(x W) V, weighted by their probabilities.

    Several weights are scaled to sum to 1. No token is dropped: tokens are sorted by expert, and an
    expert multiplies its tokens (``lax.ragged_dot``). Padding is routed and counted too. The sorted
    tokens are not split over a mesh: devices multiply the tokens of the whole batch.
    """

    d_ff: int
    settings: ExpertsSettings
    dropout: Rate
    precision: Precision

    @nn.compact
    def __call__(self, inputs: Hidden, *, train: bool) -> Hidden:
        experts, top, d_model = self.settings.num_experts, self.settings.experts_per_token, inputs.shape[-1]
        router = self.param("router_kernel", xavier_uniform(0, 1), (d_model, experts))
        of_expert = xavier_uniform(1, 2, batch_axes=(0,))
        wide_kernel = self.param("experts_wide", of_expert, (experts, d_model, self.d_ff))
        narrow_kernel = self.param("experts_narrow", of_expert, (experts, self.d_ff, d_model))
        # Rounded logits could choose other experts in training than in decoding.
        exact = replace(self.precision, compute="float32", output="float32", product=HIGHEST, mantissa_bits=None)
        probabilities = jax.nn.softmax(einsum("BLD,DE->BLE", inputs, router, exact))
        if self.settings.balance_bias:
            bias = self.param("balance_bias", nn.initializers.zeros, (experts,))
            _, selected = lax.top_k(probabilities + bias[None, None], top)
            weights = jnp.take_along_axis(probabilities, selected, axis=-1)
        else:
            weights, selected = lax.top_k(probabilities, top)
        # A single scaled weight would be 1, without a gradient for the router (Fedus et al. 2022,
        # equation 2).
        if top > 1:
            weights /= jnp.sum(weights, axis=-1, keepdims=True)
        sizes = jnp.sum(jax.nn.one_hot(selected, experts, dtype=jnp.int32), axis=(0, 1, 2))
        self.sow(SOWN, "expert_load", sizes.astype(jnp.float32))
        # The share of tokens of an expert times its mean probability, 1 if all are equal (Fedus et
        # al. 2022, equation 4).
        shares = sizes / selected.size
        self.sow(SOWN, "load_balance", experts * jnp.sum(shares * jnp.mean(probabilities, axis=(0, 1))))
        order = jnp.argsort(selected.ravel())
        tokens = jnp.take(inputs.reshape(-1, d_model), order // top, axis=0)
        wide = relu(self._of_expert(tokens, wide_kernel, sizes).astype(self.precision.output))
        wide = Dropout(self.dropout)(wide[None], train=train)[0]
        outputs = jnp.take(self._of_expert(wide, narrow_kernel, sizes), jnp.argsort(order), axis=0)
        summed = jnp.sum(outputs.reshape(*selected.shape, d_model) * weights[..., None], axis=-2)
        return summed.astype(self.precision.output)

    def _of_expert(self, tokens: Array, kernels: Array, sizes: Array) -> Array:
        """Multiply tokens [N, D], sorted by expert, by their kernels [E, D, F], in float32."""
        return expert_product(self.precision, (str(tokens.dtype), str(kernels.dtype)), tokens, kernels, sizes)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def expert_product(precision: Precision, dtypes: tuple[str, str], tokens: Array, kernels: Array, sizes: Array) -> Array:
    """Return ``lax.ragged_dot`` of rounded operands in float32, and round cotangents too."""
    return _forward(precision, dtypes, tokens, kernels, sizes)[0]


def _forward(
    precision: Precision, dtypes: tuple[str, str], tokens: Array, kernels: Array, sizes: Array
) -> tuple[Array, tuple[Array, Array, Array]]:
    del dtypes
    operands = precision.rounded(tokens), precision.rounded(kernels), sizes
    return lax.ragged_dot(*operands, precision.product, jnp.float32), operands


def _backward(
    precision: Precision, dtypes: tuple[str, str], operands: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Array, Array, None]:
    tokens, kernels, sizes = operands
    cotangent = precision.rounded(cotangent)
    to_tokens = lax.ragged_dot(cotangent, kernels.mT, sizes, precision.product, jnp.float32)
    to_kernels = lax.ragged_dot_general(
        tokens, cotangent, sizes, _OF_GROUPS, precision=precision.product, preferred_element_type=jnp.float32
    )
    return to_tokens.astype(dtypes[0]), to_kernels.astype(dtypes[1]), None


# [N, D] and [N, F], sorted by group, to [E, D, F].
_OF_GROUPS = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
expert_product.defvjp(_forward, _backward)


@register("feed_forward", "mixture_of_experts", settings=ExpertsSettings)
def mixture_of_experts(settings: ExpertsSettings, config: Any, site: Site, **options: Any) -> Experts:
    """Send a token to some of many feed-forward layers; add load_balance or balance_bias."""
    return Experts(config.d_ff, settings, **options)


@dataclass(frozen=True)
class LoadBalanceSettings:
    weight: float = setting(1e-2, "Factor on the balance, 1 for equal loads.", at_least=0, program="traced")

    def check_new_run(self, config: ExperimentConfig) -> None:
        layers = [selection.name for selection in config.selections if selection.kind == "feed_forward"]
        if not any(name == "mixture_of_experts" or ("feed_forward", name) not in own_parts() for name in layers):
            raise ConfigError("training.loss_terms", NO_EXPERTS)


@register("loss_term", "load_balance", settings=LoadBalanceSettings)
class LoadBalance(LossTerm):
    """N times the sum over N experts of token share times mean probability (Fedus et al. 2022).

    Section 2.2, equation 4. Shares and means are over all tokens of the batch, padding too. With
    accumulation they are over a micro-batch; if the mesh has only a ``data`` axis, over the part of
    it on one device. Layers run unrolled, with their activations stored. The heads of multi_token,
    which decoding does not use, are not balanced.
    """

    reads_sown = True
    is_sum_of_tokens = False

    def of_pass(self, forced: ForcedPass) -> Array:
        sown = flatten_dict(forced.sown).items()
        balances = [sum(values) for path, values in sown if path[-1] == "load_balance"]
        if not balances:
            raise ConfigError("training.loss_terms", NO_EXPERTS)
        return self.settings.weight * jnp.sum(forced.weights) * sum(balances)
