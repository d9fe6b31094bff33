"""Multi-head attention with changes in order: of queries and keys, scores, visible keys, weights, number of key heads."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, Bool, Float, Int
from transformer_jax.config import ConfigError, ExperimentConfig
from transformer_jax.layers.attention import KVCache, LayerCache, MultiHeadAttention, StepMask, empty_kv
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.masks import MaskMod, SentenceMask, Window
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.part_shapes import require_shape
from transformer_jax.layers.scaled_dot_product import At, AttentionOptions, modified_attention
from transformer_jax.layers.site import Site
from transformer_jax.registry.plugins import registered


class AttentionChange(nn.Module):
    """One change of multi-head attention; a subclass overrides the methods of what it changes.

    Parameters are created in ``setup``. ``settings``: the settings dataclass that the part was registered with.
    """

    num_heads: int
    key_size: int
    d_model: int
    site: Site
    settings: Any = None
    attention: ClassVar[type | None] = None
    """The subclass of ``ModifiedAttention`` that it needs, for other projections or another cache."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if callable(vars(cls).get("key_value_heads")):
            raise TypeError(f"{cls.__name__}.key_value_heads is a method; make it a property, with @property above it")

    @classmethod
    def is_at(cls, site: Site) -> bool:
        """Whether the change may apply at a site of attention."""
        return True

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site) -> "AttentionChange | None":
        """Return the change at a site for the settings of a model; None changes nothing.

        Raises ConfigError at a site without attention.
        """
        if not cls.is_at(site):
            return None
        if site.kind not in ("self", "cross"):
            problem = f"{cls.__name__}.of was called for site.kind={site.kind!r}, but it changes attention"
            raise ConfigError("model.positions", problem, "return None there, or subclass SelfAttentionChange")
        return cls(config.num_heads, config.head_key_size, config.d_model, site, settings)

    @property
    def key_value_heads(self) -> int:
        """G, the number of heads of keys and values, which divides ``num_heads``."""
        return self.num_heads

    def queries(self, query_BHQK: Float[Array, "B H Q K"], positions: Int[AnyArray, "B Q"]) -> Float[Array, "B H Q K"]:
        """Projected queries."""
        return query_BHQK

    def keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B G M K"]:
        """Projected keys; a cache holds changed ones."""
        return key_BGMK

    def score_mod(self) -> Partial | None:
        """``Partial(function, *arrays)``: ``function(*arrays, scores, at)`` returns other scores [B, H, Q, M], float32.

        It sees one block of the scores at a time, all heads of it, before the mask. See ``At``.
        """
        return None

    def mask_mod(self) -> MaskMod | None:
        """A window of visible keys (self-attention only), or a function of positions of queries and keys."""
        return None

    def weights_mod(self) -> Partial | None:
        """``Partial(function, *arrays)``: ``function(*arrays, weights, scores)`` returns other weights after the softmax.

        ``scores`` are float32, and ``MASKED_SCORE`` for hidden keys.
        All weights are then computed at once, without a backend.
        """
        return None


class SelfAttentionChange(AttentionChange):
    """A change of self-attention only, such as positions."""

    @classmethod
    def is_at(cls, site: Site) -> bool:
        return site.kind == "self"


class ModifiedAttention(MultiHeadAttention):
    """Multi-head attention with the changes that ``makers`` make, in their order; None is no change.

    Query head h uses key head h // (H / G). Parameters: ``query`` [D, H, K], ``key`` [D, G, K], ``value`` [D, G, U], ``output``
    [H, U, D], and of each change in ``changes_NAME``.
    """

    makers: tuple[tuple[str, Callable[[], AttentionChange | None]], ...] = ()

    def setup(self) -> None:
        made = {name: make() for name, make in self.makers}
        self.changes = {name: change for name, change in made.items() if change is not None}
        groups = self.num_key_value_heads
        if self.num_heads % groups != 0:
            problem = f"{self.num_heads} heads are not divisible by {groups} key-value heads"
            raise ConfigError("model.num_heads", problem)
        heads_in, heads_out = xavier_uniform(0, (1, 2)), xavier_uniform((0, 1), 2)
        self.query_kernel = self.param("query", heads_in, (self.d_model, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.memory_width, groups, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.memory_width, groups, self.value_size))
        self.output_kernel = self.param("output", heads_out, (self.num_heads, self.value_size, self.d_model))
        self.weight_dropout = Dropout(self.dropout)

    @property
    def memory_width(self) -> int:
        """The width of the arrays that keys and values are projected from."""
        return self.d_model

    @property
    def num_key_value_heads(self) -> int:
        asked = {name: each.key_value_heads for name, each in self.changes.items()}
        others = [name for name, number in asked.items() if number != self.num_heads]
        if len(others) >= 2:
            problem = f"{' and '.join(others)} both choose the number of key-value heads; choose one"
            raise ConfigError("model.attention", problem)
        return asked[others[0]] if others else self.num_heads

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to ``memory``."""
        projected, value_BGMU = self.project_memory(memory)
        query_positions, key_positions = mask.positions
        key_BGMK = self._changed_keys(projected, key_positions)
        query_BHQK = self._changed_queries(queries, query_positions)
        score_mod = self.score_mod(mask.score_mod)
        mask = replace(mask, mask_mod=self._window(), score_mod=None)
        changes_weights = bool(self._mods("weights_mod"))
        if changes_weights:
            log_dense_attention()
        if changes_weights or self.is_mutable_collection("intermediates"):
            every = query_BHQK, key_BGMK, value_BGMU, mask.array(), mask.positions, score_mod
            return self.attend_dense_modified(*every, train=train)
        options = AttentionOptions(self.weight_dropout.mask(train=train), self.precision, score_mod)
        heads_BHQU = self.backend(query_BHQK, key_BGMK, value_BGMU, mask, options)
        return self.project_output(heads_BHQU)

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        """The cache: G heads of keys and values, in a ring of cache slots where a window ends there."""
        sizes = self.num_key_value_heads, self.num_kept_slots(num_slots, beams), self.key_size, self.value_size
        return LayerCache(empty_kv(rows, *sizes, self.precision))

    def num_kept_slots(self, num_slots: int, beams: int) -> int:
        """The number of cache slots: a window needs no more than its own."""
        window = self._window()
        if isinstance(window, Window) and window.left is not None and window.right == 0:
            return min(num_slots, (window.left + 1) * beams)
        return num_slots

    def prefill(self, inputs: Float[Array, "B P D"], mask: SentenceMask, cache: LayerCache) -> LayerCache:
        """``cache`` with a prompt in its first P cache slots, or in a ring with its end."""
        return cache._replace(kv_cache=_written(cache.kv_cache, self.cache_of(inputs, mask.positions[1]), 0))

    def step(
        self, inputs: Float[Array, "B W D"], cache: LayerCache, mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        """See ``MultiHeadAttention``; cache slot s is in slot s mod N of a ring of N."""
        ring, num_slots, beams = cache.kv_cache.keys.shape[3], mask.visible.shape[2], inputs.shape[1]
        if ring == num_slots:
            return super().step(inputs, cache, mask)
        written = _written(cache.kv_cache, self.cache_of(inputs, mask.query_positions), mask.write_index)
        last = mask.write_index + beams - 1
        newest = last - (last - jnp.arange(ring)) % ring
        visible = jnp.take(mask.visible, newest, axis=2, mode="clip") & (newest >= 0)[None, None]
        positions = jnp.take(mask.key_positions, newest, axis=1, mode="clip")
        attended = self.attend(inputs, written, mask._replace(visible=visible, key_positions=positions))
        return attended, cache._replace(kv_cache=written)

    def cache_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> KVCache:
        """The changed keys and the values of a whole ``memory``."""
        keys, values = self.project_memory(memory)
        keys = jnp.swapaxes(self._changed_keys(keys, positions), 2, 3)
        return KVCache(keys.astype(self.precision.compute), values.astype(self.precision.compute))

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        """Attends from ``queries`` to the visible cache slots."""
        query_BHQK = self._changed_queries(queries, mask.query_positions)
        positions, score_mod = (mask.query_positions, mask.key_positions), self.score_mod(mask.score_mod)
        every = query_BHQK, jnp.swapaxes(cache.keys, 2, 3), cache.values, self._visible(mask), positions, score_mod
        return self.attend_dense_modified(*every, train=False)

    def _visible(self, mask: StepMask) -> Bool[Array, "B #W M"]:
        window = self._window()
        return mask.visible & window(mask.query_positions, mask.key_positions) if window else mask.visible

    def _changed_queries(self, queries: Float[Array, "B Q D"], positions: Int[AnyArray, "B Q"]) -> Array:
        query_BHQK = self.project_queries(queries)
        for change in self.changes.values():
            changed = change.queries(query_BHQK, positions)
            query_BHQK = require_shape(changed, query_BHQK.shape, "B, H, Q, K", type(change).queries)
        return query_BHQK

    def _changed_keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Array:
        for change in self.changes.values():
            key_BGMK = require_shape(change.keys(key_BGMK, positions), key_BGMK.shape, "B, G, M, K", type(change).keys)
        return key_BGMK

    def _mods(self, method: str) -> list[Any]:
        mods = (getattr(change, method)() for change in self.changes.values())
        return [mod for mod in mods if mod is not None]

    def _window(self) -> MaskMod | None:
        windows = self._mods("mask_mod")
        if len(windows) >= 2:
            raise ConfigError("model.attention", f"{len(windows)} parts have a window", "choose one")
        window = windows[0] if windows else None
        is_cross = any(change.site.kind == "cross" for change in self.changes.values())
        if is_cross and isinstance(window, Window):
            problem = "a Window counts distances in the row, which mean nothing in cross-attention; use a function of positions"
            raise ConfigError("model.attention", problem)
        return window

    def attend_dense_modified(
        self,
        query_BHQK: Float[Array, "B H Q K"],
        key_BGMK: Float[Array, "B G M K"],
        value_BGMU: Float[Array, "B G M U"],
        mask: Bool[Array, "#B #Q M"],
        positions: tuple[Int[AnyArray, "#B Q"], Int[AnyArray, "#B M"]],
        score_mod: Partial | None,
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """All scores at once, with every change."""

        def weights_mod(weights: Array, scores: Array) -> Array:
            for mod in self._mods("weights_mod"):
                weights = require_shape(mod(weights, scores), weights.shape, "B, H, Q, M", mod.func)
            return weights

        options = AttentionOptions(self.weight_dropout.mask(train=train), self.precision, score_mod)
        operands = query_BHQK, key_BGMK, value_BGMU, mask, options
        heads_BHQU, weights_BHQM = modified_attention(*operands, weights_mod=weights_mod, positions=positions)
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self.project_output(heads_BHQU)

    def score_mod(self, of_stack: Partial | None) -> Partial | None:
        """The changes of scores of this attention, then the one that all layers share."""
        mods = [*self._mods("score_mod"), *([of_stack] if of_stack else [])]
        return Partial(_in_order, mods) if mods else None


def class_for(changes: Mapping[str, Any]) -> type[ModifiedAttention]:
    """The class of attention that changes need, by name: the one that one of them names, else ``ModifiedAttention``.

    Raises ConfigError where several name one, and for a part that is no change.
    """
    for name, change in changes.items():
        if not isinstance(change, type) or not issubclass(change, AttentionChange):
            problem = f"{name} must subclass AttentionChange or MultiHeadAttention; register a class"
            raise ConfigError("model.attention", problem)
    classes = [change.attention for change in changes.values() if change.attention]
    if len(classes) >= 2:
        raise ConfigError(
            "model.attention", f"{','.join(changes)} names {len(classes)} kinds of attention", "choose one"
        )
    return classes[0] if classes else ModifiedAttention


@cache
def log_dense_attention() -> None:
    """Logs, once per process, that attention computes all scores at once."""
    logging.getLogger("transformer_jax").info(
        "attention: no backend takes a change of weights (weights_mod): all scores are computed at once, in quadratic memory"
    )


def require_first_weights(config: ExperimentConfig, name: str) -> None:
    """Raises ConfigError where other changes of weights come before the part ``name``, which changes the softmax itself."""
    names = [each.name for each in config.selections if each.kind == "attention"]
    changes, plain = registered("attention"), AttentionChange.weights_mod
    others = [each for each in names[: names.index(name)] if getattr(changes[each], "weights_mod", plain) is not plain]
    if others:
        raise ConfigError("model.attention", f"{name} changes the softmax", f"put it before {', '.join(others)}")


def _written(cache: KVCache, new: KVCache, write_index: Int[Array, ""] | int) -> KVCache:
    """``cache`` with ``new`` in the cache slots from ``write_index`` on, around the ring; of many the last."""
    ring, count = cache.keys.shape[3], new.keys.shape[3]
    kept = min(ring, count)
    index = (write_index + count - kept + jnp.arange(kept)) % ring
    keys = cache.keys.at[:, :, :, index].set(new.keys[:, :, :, count - kept :])
    return KVCache(keys, cache.values.at[:, :, index].set(new.values[:, :, count - kept :]))


def _in_order(mods: list[Partial], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
    for mod in mods:
        scores = require_shape(mod(scores, at), scores.shape, "B, H, Q, M", mod.func).astype(jnp.float32)
    return scores
