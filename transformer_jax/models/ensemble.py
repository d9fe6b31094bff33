"""Several models as one: at every step the mean of their probabilities."""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.array_types import Array, Float, Int, Logits, PyTree
from transformer_jax.models.interface import Module
from transformer_jax.sequence_types import DecodeCache, Tokens


def mean_log_probs(logits: Sequence[Float[Array, "*N V"]]) -> Float[Array, "*N V"]:
    """Return the logarithm of the mean softmax probabilities of the members, in float32.

    As in the ensembles of Sutskever et al. 2014 (section 3.6) and of fairseq. With the mean of
    logarithms one member could veto the others. The result is normalized: its softmax is the mean.
    """
    log_probs = jnp.stack([jax.nn.log_softmax(member.astype(jnp.float32)) for member in logits])
    return jax.nn.logsumexp(log_probs, axis=0) - math.log(len(logits))


class Ensemble(nn.Module):
    """An ensemble of ``members`` with the interface of one model.

    Members share the vocabularies, but no modules. Memories and the parts of the cache are tuples
    with one entry a member. Parameters: ``joined_params``.
    """

    members: tuple[Module, ...]

    def encode(self, source: Tokens, *, train: bool) -> tuple[PyTree, ...]:
        return tuple(member.encode(source, train=train) for member in self.members)

    def decode(self, target: Tokens, memory: tuple[PyTree, ...], *, train: bool) -> Logits:
        """Return the logarithms of the mean probabilities of every token, which are logits too."""
        pairs = zip(self.members, memory, strict=True)
        return mean_log_probs([member.decode(target, encoded, train=train) for member, encoded in pairs])

    def init_cache(self, memory: tuple[PyTree, ...], *, beam_width: int, max_length: int) -> DecodeCache:
        sizes = {"beam_width": beam_width, "max_length": max_length}
        caches = [member.init_cache(encoded, **sizes) for member, encoded in zip(self.members, memory, strict=True)]
        return _joined_caches(caches)

    def decode_step(
        self, token_ids: Int[Array, "B W"], cache: DecodeCache
    ) -> tuple[Float[Array, "B W V"], DecodeCache]:
        """Return the log of the mean probability of every next token, and the next cache."""
        caches = zip(self.members, cache.per_beam, cache.per_sentence, cache.kv_cache, strict=True)
        steps = [member.decode_step(token_ids, DecodeCache(*parts)) for member, *parts in caches]
        return mean_log_probs([logits for logits, _ in steps]), _joined_caches([after for _, after in steps])


def joined_params(params: Sequence[PyTree]) -> dict[str, PyTree]:
    """Return the parameters of an ``Ensemble`` from its members' parameters, in their order."""
    return {f"members_{number}": member for number, member in enumerate(params)}


def _joined_caches(caches: Sequence[DecodeCache]) -> DecodeCache:
    return DecodeCache(*zip(*caches, strict=True))
