"""What a recurrent decoder reads while it learns: the reference, or now and then its own words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Int, PyTree
from transformer_jax.models.rnn_decoder import DecoderState, Places

if TYPE_CHECKING:
    from transformer_jax.models.rnn import RnnSeq2Seq

SAMPLING = "dropout"
"""The stream of random numbers that words are drawn from; there is one in every training pass."""


@dataclass(frozen=True)
class TeacherForcing:
    """Every token is read after those of the reference (Williams and Zipser 1989), so all of them are read at once."""

    def __call__(
        self, model: "RnnSeq2Seq", inputs: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[Places, PyTree]:
        """What was read, and what ``advance`` left behind at every place."""
        positions = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
        places = Places(model.embed_target(inputs, train=train), positions)

        def advance(model: "RnnSeq2Seq", state: DecoderState, at: PyTree) -> tuple[DecoderState, PyTree]:
            read, positions = at
            return model.decoder.advance(read, positions, state, prepared, train=train)

        _, left = _over_time(advance, model, state, (model.decoder.read(places), positions))
        return places, left


@dataclass(frozen=True)
class ScheduledSampling:
    """With ``probability`` a token is read that the model itself drew, not that of the reference (Bengio et al. 2015).

    The probability stays the same throughout, as in Chan et al. 2016, section 3.3; the schedules of Bengio et al., which raise
    it, are not here. Costs the product over the vocabulary in every step. Outside training it is teacher forcing.
    """

    probability: float

    def __call__(
        self, model: "RnnSeq2Seq", inputs: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[Places, PyTree]:
        """What was read, and what ``advance`` left behind at every place."""
        if not train:
            return TeacherForcing()(model, inputs, state, prepared, train=train)
        positions = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)

        def advance(model: "RnnSeq2Seq", carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
            state, own = carry
            ids, positions = at
            draws = jax.random.bernoulli(model.make_rng(SAMPLING), self.probability, ids.shape) & (positions > 0)
            places = Places(model.embed_target(jnp.where(draws, own, ids), train=train), positions)
            state, left = model.decoder.advance(model.decoder.read(places), positions, state, prepared, train=train)
            written = model.decoder.write(places, left, prepared, train=train)
            logits = jax.lax.stop_gradient(model.projection.logits(written.output))
            return (state, jax.random.categorical(model.make_rng(SAMPLING), logits)), (places.embedded, left)

        _, (embedded, left) = _over_time(advance, model, (state, inputs[:, :1]), (inputs, positions))
        return Places(embedded, positions), left


Feeding = TeacherForcing | ScheduledSampling
Advance = Callable[["RnnSeq2Seq", PyTree, PyTree], tuple[PyTree, PyTree]]


def _over_time(advance: Advance, model: "RnnSeq2Seq", carry: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
    """A scan over the second axis, which each step sees with length 1, of inputs and outputs [B, T, ...]."""

    def one(model: "RnnSeq2Seq", carry: PyTree, at: PyTree) -> tuple[PyTree, PyTree]:
        carry, left = advance(model, carry, jax.tree.map(lambda leaf: leaf[:, None], at))
        return carry, jax.tree.map(lambda leaf: leaf[:, 0], left)

    rngs: dict = {"params": False, SAMPLING: True}
    scan = nn.scan(one, variable_broadcast="params", variable_axes={"intermediates": 0}, split_rngs=rngs)
    carry, left = scan(model, carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), inputs))
    return carry, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), left)
