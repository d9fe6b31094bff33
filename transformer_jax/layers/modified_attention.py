"""Multi-head attention with changes of its arrays and functions, in order."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, reduce
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from transformer_jax.array_types import AnyArray, Array, Bool, Float, Int, TokenIds
from transformer_jax.config import ConfigError
from transformer_jax.layers.attention import KVCache, LayerCache, MultiHeadAttention, StepMask, empty_kv
from transformer_jax.layers.dropout import Dropout
from transformer_jax.layers.masks import MaskMod, SentenceMask, Window
from transformer_jax.layers.parameter_initialization import xavier_uniform
from transformer_jax.layers.part_shapes import require_shape
from transformer_jax.layers.scaled_dot_product import At, AttentionOptions, Denominator, modified_attention
from transformer_jax.layers.site import Site
from transformer_jax.precision import FLOAT32, Precision


class AttentionChange(nn.Module):
    """One change of multi-head attention; a subclass overrides the methods that it changes.

    Parameters are created in ``setup``. ``settings``: the settings dataclass that the part was
    registered with. The attention sets ``value_size`` and ``precision``.
    """

    num_heads: int
    key_size: int
    d_model: int
    site: Site
    settings: Any = None
    value_size: int = 0
    precision: Precision = FLOAT32
    attention: ClassVar[type | None] = None
    """The subclass of ``ModifiedAttention`` that it needs, if any."""
    carries: ClassVar[bool] = False
    """Whether it passes a state from layer to layer (``SelfAttentionChange.memory``)."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if callable(vars(cls).get("key_value_heads")):
            raise TypeError(f"{cls.__name__}.key_value_heads is a method; make it a property, with @property above it")

    @classmethod
    def is_at(cls, site: Site) -> bool:
        return True

    @classmethod
    def of(cls, settings: Any, config: Any, site: Site) -> "AttentionChange | None":
        """Return the change at a site for the settings of a model, None for no change.

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
        """Change the projected queries."""
        return query_BHQK

    def keys(self, key_BGMK: Float[Array, "B G M K"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B G M K"]:
        """Change the projected keys, before they enter a cache."""
        return key_BGMK

    def values(self, value_BGMU: Float[Array, "B G M U"], positions: Int[AnyArray, "B M"]) -> Float[Array, "B V M X"]:
        """Change the projected values, before they enter a cache.

        V divides H. If X is another size than U, ``heads`` returns size U.
        """
        return value_BGMU

    def score_mod(self) -> Partial | None:
        """Return ``Partial(function, *arrays)`` with ``function(*arrays, scores, at)``: new scores.

        It changes a block of float32 scores [B, H, Q, M], all heads of it, before the mask. See
        ``At``.
        """
        return None

    def mask_mod(self) -> MaskMod | None:
        """Return a ``Window`` (self-attention only), or a function of both positions."""
        return None

    def denominator_mod(self) -> Denominator | None:
        """Return another denominator of the softmax, to which every part adds its terms."""
        return None

    def weights_mod(self) -> Partial | None:
        """Return ``Partial(function, *arrays)`` of other weights, called with ``weights, scores``.

        ``function(*arrays, weights, scores)`` reads float32 scores, ``MASKED_SCORE`` for hidden
        keys. All weights are then computed at once, without a backend.
        """
        return None

    def heads(self, heads_BHQU: Float[Array, "B H Q X"], inputs: Float[Array, "B Q D"]) -> Float[Array, "B H Q U"]:
        """Change the heads before W^O. Queries are projected from ``inputs``.

        A part that changes values comes first.
        """
        return heads_BHQU


class SelfAttentionChange(AttentionChange):
    """A change of self-attention only, such as positions."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.carries = cls.memory is not SelfAttentionChange.memory

    @classmethod
    def is_at(cls, site: Site) -> bool:
        return site.kind == "self"

    def memory(
        self, key_BGMK: Float[Array, "B G M K"], value_BGMU: Float[Array, "B G M U"], state: Any, token_ids: TokenIds
    ) -> tuple[Float[Array, "B G M K"], Float[Array, "B G M U"], Any]:
        """Return changed keys and values, which a cache holds, and the next layer's ``state``.

        ``state`` is None in the first layer, and has the same shapes in all others. ``token_ids``
        [B, M] are the input.
        """
        return key_BGMK, value_BGMU, state


class ModifiedAttention(MultiHeadAttention):
    """Multi-head attention with the changes that ``makers`` return, in order; None is no change.

    Query head h uses key head h // (H / G). Parameters: ``query`` [D, H, K], ``key`` [D, G, K],
    ``value`` [D, G, U], ``output`` [H, U, D], and those of changes in ``changes_NAME``.
    """

    makers: tuple[tuple[str, Callable[[], AttentionChange | None]], ...] = ()
    carries: ClassVar[bool] = False

    def setup(self) -> None:
        changes = {name: make() for name, make in self.makers}
        shared: dict[str, Any] = {"value_size": self.value_size, "precision": self.precision}
        self.changes = {name: change.clone(**shared) for name, change in changes.items() if change is not None}
        if unread := [name for name, change in self.changes.items() if change.carries and not self.carries]:
            problem = f"{unread[0]} has a state between layers; register its class, which is for self-attention only"
            raise ConfigError("model.attention", problem)
        groups = self.num_key_value_heads
        if self.num_heads % groups != 0:
            problem = f"{self.num_heads} heads are not divisible by {groups} key-value heads"
            raise ConfigError("model.num_heads", problem)
        heads_in, heads_out = xavier_uniform(0, (1, 2)), xavier_uniform((0, 1), 2)
        self.query_kernel = self.param("query", heads_in, (self.query_width, self.num_heads, self.key_size))
        self.key_kernel = self.param("key", heads_in, (self.memory_width, groups, self.key_size))
        self.value_kernel = self.param("value", heads_in, (self.memory_width, groups, self.value_size))
        self.output_kernel = self.param("output", heads_out, (self.num_heads, self.value_size, self.d_model))
        self.weight_dropout = Dropout(self.dropout)

    @property
    def query_width(self) -> int:
        return self.d_model

    @property
    def memory_width(self) -> int:
        return self.d_model

    @property
    def num_key_value_heads(self) -> int:
        asked = {name: change.key_value_heads for name, change in self.changes.items()}
        others = [name for name, number in asked.items() if number != self.num_heads]
        if len(others) >= 2:
            problem = f"{' and '.join(others)} both choose the number of key-value heads; choose one"
            raise ConfigError("model.attention", problem)
        return asked[others[0]] if others else self.num_heads

    def __call__(
        self, queries: Float[Array, "B Q D"], memory: Float[Array, "B M D"], mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        key_BGMK, value_BVMX = self.memory_of(memory, mask.positions[1])
        return self.attend_to(queries, key_BGMK, value_BVMX, mask, train=train)

    def attend_to(
        self, queries: Float[Array, "B Q D"], key_BGMK: Array, value_BVMX: Array, mask: SentenceMask, *, train: bool
    ) -> Float[Array, "B Q D"]:
        """Attend from ``queries`` to changed keys [B, G, M, K] and values [B, V, M, X]."""
        query_BHQK = self.queries_of(queries, mask.positions[0])
        score_mod = self.score_mod(mask.score_mod)
        mask = replace(mask, mask_mod=self._window(), score_mod=None)
        if changes_weights := self._mods("weights_mod"):
            log_dense_attention()
        if changes_weights or self.is_mutable_collection("intermediates"):
            operands = query_BHQK, key_BGMK, value_BVMX, mask.array(), mask.positions, score_mod
            return self.attend_dense_modified(*operands, queries, train=train)
        heads = self.backend(query_BHQK, key_BGMK, value_BVMX, mask, self.options(score_mod, train=train))
        return self.output_of(heads, queries)

    def empty_cache(self, rows: int, num_slots: int, beams: int) -> LayerCache:
        """Return a cache of zeros for G heads. A short window needs only a ring of cache slots."""
        heads, slots = self.num_key_value_heads, self.num_kept_slots(num_slots, beams)
        cache = empty_kv(rows, heads, slots, self.key_size, self.value_size, self.precision)
        values = self._in_turn("values", cache.values, np.zeros((rows, slots), np.int32))
        return LayerCache(cache._replace(values=values.astype(self.precision.compute)))

    def num_kept_slots(self, num_slots: int, beams: int) -> int:
        """Return the number of cache slots, for each beam at most the width of a window."""
        window = self._window()
        if isinstance(window, Window) and window.left is not None and window.right == 0:
            return min(num_slots, (window.left + 1) * beams)
        return num_slots

    def prefill(self, inputs: Float[Array, "B P D"], mask: SentenceMask, cache: LayerCache) -> LayerCache:
        """Write a prompt into the first P cache slots, or its end into a ring."""
        return cache._replace(kv_cache=_written(cache.kv_cache, self.cache_of(inputs, mask.positions[1]), 0))

    def step(
        self, inputs: Float[Array, "B W D"], cache: LayerCache, mask: StepMask
    ) -> tuple[Float[Array, "B W D"], LayerCache]:
        """Attend as ``MultiHeadAttention.step``. In a ring of N slots, slot s is at s mod N."""
        ring, num_slots, beams = cache.kv_cache.keys.shape[3], mask.visible.shape[2], mask.query_positions.shape[1]
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
        keys, values = self.memory_of(memory, positions)
        return KVCache(jnp.swapaxes(keys, 2, 3).astype(self.precision.compute), values.astype(self.precision.compute))

    def attend(self, queries: Float[Array, "B Q D"], cache: KVCache, mask: StepMask) -> Float[Array, "B Q D"]:
        query_BHQK = self.queries_of(queries, mask.query_positions)
        positions, score_mod = (mask.query_positions, mask.key_positions), self.score_mod(mask.score_mod)
        operands = query_BHQK, jnp.swapaxes(cache.keys, 2, 3), cache.values, self._visible(mask), positions, score_mod
        return self.attend_dense_modified(*operands, queries, train=False)

    def _visible(self, mask: StepMask) -> Bool[Array, "B #W M"]:
        window = self._window()
        return mask.visible & window(mask.query_positions, mask.key_positions) if window else mask.visible

    def queries_of(self, queries: Float[Array, "B Q D"], positions: Int[AnyArray, "B Q"]) -> Array:
        return self._in_turn("queries", self.project_queries(queries), positions, "B, H, Q, K")

    def memory_of(self, memory: Float[Array, "B M D"], positions: Int[AnyArray, "B M"]) -> tuple[Array, Array]:
        keys, values = self.project_memory(memory)
        return self._in_turn("keys", keys, positions, "B, G, M, K"), self._in_turn("values", values, positions)

    def output_of(self, heads: Float[Array, "B H Q X"], inputs: Float[Array, "B Q D"]) -> Float[Array, "B Q D"]:
        """Change the heads and multiply them by W^O. Queries were projected from ``inputs``."""
        changes = [change for change in self.changes.values() if type(change).heads is not AttentionChange.heads]
        for change in sorted(changes, key=lambda change: type(change).values is AttentionChange.values):
            changed, shape = change.heads(heads, inputs), (*heads.shape[:3], self.value_size)
            heads = require_shape(changed, shape, "B, H, Q, U", type(change).heads)
        return self.project_output(heads)

    def _in_turn(self, method: str, array: Array, positions: Int[AnyArray, "B L"], axes: str = "") -> Array:
        """Call ``method`` of every change in turn. With ``axes`` it must not change the shape."""
        for change in self.changes.values():
            changed = getattr(change, method)(array, positions)
            array = require_shape(changed, array.shape, axes, getattr(type(change), method)) if axes else changed
        return array

    def _mods(self, method: str) -> list[Any]:
        return [mod for change in self.changes.values() if (mod := getattr(change, method)()) is not None]

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
        value_BVMX: Float[Array, "B V M X"],
        mask: Bool[Array, "#B #Q M"],
        positions: tuple[Int[AnyArray, "#B Q"], Int[AnyArray, "#B M"]],
        score_mod: Partial | None,
        inputs: Float[Array, "B Q D"],
        *,
        train: bool,
    ) -> Float[Array, "B Q D"]:
        """Attend with all scores at once, with every change."""

        def weights_mod(weights: Array, scores: Array) -> Array:
            for mod in self._mods("weights_mod"):
                weights = require_shape(mod(weights, scores), weights.shape, "B, H, Q, M", mod.func)
            return weights

        operands = query_BHQK, key_BGMK, value_BVMX, mask, self.options(score_mod, train=train)
        heads, weights_BHQM = modified_attention(*operands, weights_mod=weights_mod, positions=positions)
        self.sow("intermediates", "attention_weights", weights_BHQM)
        return self.output_of(heads, inputs)

    def score_mod(self, of_stack: Partial | None) -> Partial | None:
        """Return the changes of scores of this attention, then the one that all layers share."""
        mods = [*self._mods("score_mod"), *([of_stack] if of_stack else [])]
        return Partial(_in_order, mods) if mods else None

    def options(self, score_mod: Partial | None, *, train: bool) -> AttentionOptions:
        """Return the options of the backend, with the denominators of all changes in one."""
        denominators: list[Denominator] = self._mods("denominator_mod")
        terms = [denominator.terms for denominator in denominators if denominator.terms is not None]
        if len(terms) >= 2:
            problem = f"{len(terms)} parts replace the exponentials of the softmax"
            raise ConfigError("model.attention", problem, "choose one")
        rests = [change.log_rest.astype(jnp.float32) for change in denominators]
        denominator = Denominator(reduce(jnp.logaddexp, rests), *terms) if rests else None
        return AttentionOptions(self.weight_dropout.mask(train=train), self.precision, score_mod, denominator)


def class_for(changes: Mapping[str, Any]) -> type[ModifiedAttention]:
    """Return the class of attention that changes need, by name, else ``ModifiedAttention``.

    Raises ConfigError if several need one, and for a part that is no change.
    """
    for name, change in changes.items():
        if not isinstance(change, type) or not issubclass(change, AttentionChange):
            problem = f"{name} must subclass AttentionChange or MultiHeadAttention; register a class"
            raise ConfigError("model.attention", problem)
    classes = [change.attention for change in changes.values() if change.attention]
    if len(classes) >= 2:
        problem = f"{','.join(changes)} names {len(classes)} kinds of attention"
        raise ConfigError("model.attention", problem, "choose one")
    return classes[0] if classes else ModifiedAttention


@cache
def log_dense_attention() -> None:
    logging.getLogger("transformer_jax").info(
        "attention: no backend takes a change of weights (weights_mod): all scores are computed at once, in quadratic memory"
    )


def _written(cache: KVCache, new: KVCache, write_index: Int[Array, ""] | int) -> KVCache:
    """Write ``new`` into the ring from ``write_index`` on, or only its end if it is longer."""
    ring, count = cache.keys.shape[3], new.keys.shape[3]
    kept = min(ring, count)
    index = (write_index + count - kept + jnp.arange(kept)) % ring
    keys = cache.keys.at[:, :, :, index].set(new.keys[:, :, :, count - kept :])
    return KVCache(keys, cache.values.at[:, :, index].set(new.values[:, :, count - kept :]))


def _in_order(mods: list[Partial], scores: Float[Array, "B H Q M"], at: At) -> Float[Array, "B H Q M"]:
    for mod in mods:
        scores = require_shape(mod(scores, at), scores.shape, "B, H, Q, M", mod.func).astype(jnp.float32)
    return scores
