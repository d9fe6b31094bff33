"""Initialization of a model by a part, from the site and path of a parameter."""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax

from transformer_jax.array_types import AnyArray, Array, PyTree
from transformer_jax.layers.part_shapes import checked_parts
from transformer_jax.layers.site import Site, SiteKind
from transformer_jax.registry.plugins import register, registered


def initialized(init: Callable[[Array], PyTree], config: Any, parts: Mapping[str, Any], key: Array) -> PyTree:
    """Return the parameters ``init(key)`` of the layers, changed by ``model.initialization``.

    A part takes its settings, the settings of the model, the site and the path of a parameter. It
    returns a factor on the initial value, or an initializer (key, shape, type) that replaces it.
    Raises ConfigError if a part of the model returns a wrong shape.
    """
    with checked_parts(config.d_model):
        params = init(key)
    name = config.initialization
    rule, settings = registered("initialization")[name], parts.get(name)
    if rule is xavier:
        return params
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    keys = jax.random.split(key, len(leaves))

    def begun(key_path: tuple, leaf: AnyArray, key: Array) -> AnyArray:
        path = "/".join(entry.key for entry in key_path)
        change = rule(settings, config, site_of(path, config).named(name), path)
        return change(key, leaf.shape, leaf.dtype) if callable(change) else leaf * change

    return jax.tree.unflatten(structure, [begun(*leaf, key) for leaf, key in zip(leaves, keys, strict=True)])


def site_of(path: str, config: Any) -> Site:
    """Return the site of a parameter from its path: ``encoder_layers_0/self_attention/query``."""
    is_encoder, layer = path.startswith(("encoder", "source")), re.search(r"layers_(\d+)/", path)
    # The first word, as in `target_positions/norm/scale`, decides. A final norm has the site of
    # self-attention.
    word = re.search("embedding|positions|self|cross|feed_forward|projection|norm", path)
    kind = cast(SiteKind, {"positions": "embedding", "norm": "self"}.get(word[0], word[0]) if word else "embedding")
    depth = config.num_encoder_layers if is_encoder else config.decoder_depth
    is_causal, index = not is_encoder and kind != "cross", int(layer[1]) if layer else None
    if re.match("loss_terms/.*/layer/", path):
        # A stack of one layer, as in multi_token.
        depth, index = 1, 0
    return Site("encoder" if is_encoder else "decoder", kind, depth, is_causal, index)


@register("initialization", "xavier")
def xavier(settings: None, config: Any, site: Site, path: str) -> float:
    """Keep the initial values of the layers: Xavier uniform for kernels, normal for embeddings."""
    return 1.0
