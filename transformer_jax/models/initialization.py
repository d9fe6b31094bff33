"""Initialization of a whole model by a part: a factor, or another initializer, by the path of a parameter."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.config.plugins import registered
from transformer_jax.layers.part_shapes import checked_parts


def initialized(init: Callable[[Array], PyTree], config: Any, parts: Mapping[str, Any], key: Array) -> PyTree:
    """Parameters as ``model.initialization`` begins, from the initial ones of the layers, ``init(key)``.

    A part takes its settings, the settings of the model and the path of a parameter; it returns a factor on the initial value,
    or an initializer (key, shape, type) that replaces it. Raises ConfigError where a part of the model returns a wrong shape.
    """
    with checked_parts(config.d_model):
        params = init(key)
    name = config.initialization
    if name == "xavier":
        return params
    rule, settings = registered("initialization")[name], parts.get(name)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    keys = jax.random.split(key, len(leaves))

    def begun(key_path: tuple, leaf: AnyArray, key: Array) -> AnyArray:
        found = rule(settings, config, "/".join(each.key for each in key_path))
        return found(key, leaf.shape, leaf.dtype) if callable(found) else leaf * found

    return jax.tree.unflatten(structure, [begun(*leaf, key) for leaf, key in zip(leaves, keys, strict=True)])
