"""What a recurrent decoder reads while it learns: the reference, or now and then its own words."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int, PyTree
from transformer_jax.models.over_time import SAMPLING, over_time
from transformer_jax.models.rnn_decoder import DecoderState, Places

if TYPE_CHECKING:
    from transformer_jax.models.rnn import RnnSeq2Seq


@dataclass(frozen=True)
class TeacherForcing:
    """Every token is read after those of the reference (Williams and Zipser 1989), so all of them are read at once."""

    def __call__(
        self, model: "RnnSeq2Seq", inputs: Int[Array, "B T"], state: DecoderState, prepared: PyTree, *, train: bool
    ) -> tuple[Places, PyTree]:
        """What was read, and what ``advance`` left behind at every place."""
        positions = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
        places = Places(model.embed_target(inputs, train=train), positions)
        return places, model.decoder.advance_all(model.decoder.read(places), positions, state, prepared, train=train)


@dataclass(frozen=True)
class ScheduledSampling:
    """With ``probability`` a token is read that the model itself drew, not that of the reference (Bengio et al. 2015).

    The probability stays the same throughout, as in Chan et al. 2016, section 3.3; the schedules of Bengio et al., which raise
    it, are not here. Costs the product over the vocabulary in every step. Outside training it is teacher forcing.
    """

    probability: float | Float[Array, ""]

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

        _, (embedded, left) = over_time(advance, model, (state, inputs[:, :1]), (inputs, positions))
        return Places(embedded, positions), left


Feeding = TeacherForcing | ScheduledSampling
