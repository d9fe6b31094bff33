"""Attentions and positions of the kit against their equations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jitted_model import random_params

from transformer_jax.config import ConfigError, MeshConfig
from transformer_jax.config.language_model import DecoderOnlyConfig
from transformer_jax.kit.alibi import LinearBiases
from transformer_jax.kit.differential import DifferentialAttention, DifferentialSettings
from transformer_jax.kit.gated import GatedAttention, GatedSettings
from transformer_jax.kit.grouped_query import GroupedQuery, GroupedQuerySettings, MultiQuery
from transformer_jax.kit.latent import Latent, LatentAttention, LatentSettings
from transformer_jax.kit.rope import RopeSettings, RotaryPositions
from transformer_jax.kit.shaw import with_relative_keys
from transformer_jax.kit.sigmoid import sigmoids
from transformer_jax.kit.sink import Sink, SoftmaxOne, Softpick
from transformer_jax.kit.soft_cap import SoftCap, SoftCapSettings, capped
from transformer_jax.kit.t5 import Buckets
from transformer_jax.kit.talking_heads import TalkingHeads
from transformer_jax.layers.attention import MultiHeadAttention, StepMask
from transformer_jax.layers.masks import SentenceMask, Window
from transformer_jax.layers.modified_attention import AttentionChange, ModifiedAttention, class_for
from transformer_jax.layers.scaled_dot_product import At, AttentionOptions, modified_attention
from transformer_jax.layers.site import Site
from transformer_jax.models.build import build_decoder_only, init_decoder_only
from transformer_jax.precision import FLOAT32
from transformer_jax.registry.plugins import register
from transformer_jax.sequence_types import Tokens
from transformer_jax.tools.conform.equations import AttentionInputs
from transformer_jax.tools.conform.references import attention as references
from transformer_jax.training.parameters import named_leaves
from transformer_jax.training.sharding import make_mesh, state_shardings

SITE = Site("decoder", "self", 2, is_causal=True, index=1)
SIZES = {"num_heads": 4, "key_size": 4, "d_model": 8}
SMALL = {"num_layers": 2, "d_model": 16, "d_ff": 16, "num_heads": 4}


def shapes_of(parts=None, **settings):
    """The shapes of the parameters of a language model."""
    model = build_decoder_only(DecoderOnlyConfig(**SMALL, **settings), 20, parts=parts)
    return jax.eval_shape(partial(init_decoder_only, model), jax.random.key(0))


def change(kind, settings=None, **sizes):
    return kind(**(SIZES | sizes), site=SITE, settings=settings)


def random(key, *shape):
    return jnp.asarray(np.random.default_rng(key).normal(size=shape), jnp.float32)


def at(query_positions, key_positions, query=None):
    return At(jnp.array([query_positions]), jnp.array([key_positions]), query)


def test_rotated_scores_depend_on_distances_only():
    rope = change(RotaryPositions, RopeSettings(base=100.0))
    query, key = random(0, 1, 1, 1, 4), random(1, 1, 1, 1, 4)

    @jax.jit
    def score(query_position, key_position):
        positions = jnp.full((1, 1), query_position), jnp.full((1, 1), key_position)
        return jnp.vdot(rope.queries(query, positions[0]), rope.keys(key, positions[1]))

    assert float(score(7, 4)) == pytest.approx(float(score(3, 0)), abs=1e-5)
    assert float(score(7, 4)) != pytest.approx(float(score(7, 5)), abs=1e-2)
    half = change(RotaryPositions, RopeSettings(share=0.5))
    result = jax.jit(half.queries)(jnp.array([[[[1.0, 0.0, 3.0, 4.0]]]]), jnp.array([[2]]))
    np.testing.assert_allclose(result[0, 0, 0], [np.cos(2), np.sin(2), 3, 4], rtol=1e-6)


def test_linear_biases_have_the_slopes_of_the_paper():
    mod = change(LinearBiases, num_heads=8).score_mod()
    scores = mod(jnp.ones((1, 8, 1, 3)), at([2], [0, 1, 2]))
    np.testing.assert_allclose(scores[0, :, 0], [[1 - 2 * 2.0**-h, 1 - 2.0**-h, 1] for h in range(1, 9)])


def test_buckets_of_t5():
    kinds = Buckets(32, 128, False), Buckets(32, 128, True)
    expected = {5: (0, 21), 0: (0, 0), -1: (1, 1), 1: (0, 17), -12: (12, 9), -20: (17, 10), -127: (31, 15), -9: (9, 8)}
    distances = jnp.array([[[*expected]]])
    actual = jax.jit(lambda distances: [kind.of(distances)[0, 0] for kind in kinds])(distances)
    np.testing.assert_array_equal(np.transpose(actual), [*expected.values()])
    table, positions = np.arange(64.0).reshape(32, 2), at([1], [0, 1])
    scores = jax.jit(kinds[0])(table, jnp.zeros((1, 2, 1, 2)), positions)
    np.testing.assert_array_equal(scores[0, :, 0], [[2, 0], [3, 1]])


@pytest.mark.parametrize("settings", [{}, pytest.param({"scan_layers": True}, marks=pytest.mark.slow)], ids=str)
def test_every_layer_reads_the_table_of_t5_of_its_stack(settings):
    model = build_decoder_only(DecoderOnlyConfig(**SMALL, positions="t5", **settings), 19)
    params = random_params(partial(init_decoder_only, model), jax.random.key(0))
    assert [path for path in named_leaves(params) if "biases" in path] == ["positions/biases"]
    tokens = Tokens.from_ids(jnp.array([[5, 6, 7, 8, 9]]))

    @jax.jit
    @jax.grad
    def gradient(positions, params):
        return jnp.sum(model.apply({"params": params | {"positions": positions}}, tokens, train=False)[..., :7])

    for name in ("decoder_layers_0", "decoder_layers_1"):
        attention = params[name]["self_attention"]
        attention = attention | {"output": 0 * attention["output"]}
        result = gradient(params["positions"], params | {name: params[name] | {"self_attention": attention}})
        assert np.abs(result["biases"]).max() > 1e-3, f"the layer beside {name} reads the table"


def test_relative_keys_are_added_to_the_keys():
    query, relative = random(0, 1, 2, 1, 4), random(1, 3, 4)
    scores = jax.jit(with_relative_keys)(relative, jnp.zeros((1, 2, 1, 4)), at([2], [0, 1, 2, 3], query))
    expected = np.asarray(query)[0, :, 0] @ np.asarray(relative)[[0, 0, 1, 2]].T
    np.testing.assert_allclose(scores[0, :, 0], expected, rtol=1e-5)


def test_capped_scores():
    result = jax.jit(capped)(jnp.full((), 2.0), jnp.array([[[[-900.0, 0.0, 1.0]]]]), at([0], [0, 1, 2]))
    np.testing.assert_allclose(result[0, 0, 0], [-2, 0, 2 * np.tanh(0.5)], atol=1e-4)


def modified(*makers):
    return ModifiedAttention(**SIZES, value_size=4, makers=tuple((f"part{i}", maker) for i, maker in enumerate(makers)))


def applied(attention, params, *inputs, **options):
    """The outputs of an attention, by one program."""
    return jax.jit(partial(attention.apply, train=False, **options))({"params": params}, *inputs)


def params_of(attention):
    return random_params(partial(attention.init, train=False), jax.random.key(1), INPUTS, INPUTS, MASK)["params"]


def empty_cache(attention, params):
    """The shapes of the cache of two rows, seven cache slots and three beams."""
    return jax.eval_shape(lambda: attention.apply({"params": params}, 2, 7, 3, method="empty_cache"))


INPUTS = random(0, 2, 5, 8)
SEGMENTS, POSITIONS = jnp.ones((2, 5), int), jnp.tile(jnp.arange(5), (2, 1))
MASK = SentenceMask(SEGMENTS, SEGMENTS, True, POSITIONS, POSITIONS)


def test_a_window_in_cross_attention_is_refused_and_a_function_of_positions_is_not():
    """In packed rows the source of a sentence does not begin where its target does."""

    class Near(AttentionChange):
        def mask_mod(self):
            return self.settings

    def initialized(mask_mod):
        attention = modified(partial(Near, **SIZES, site=SITE.of("cross"), settings=mask_mod))
        return jax.eval_shape(partial(attention.init, train=False), jax.random.key(1), INPUTS, INPUTS, packed)

    packed = SentenceMask(SEGMENTS, SEGMENTS, False, POSITIONS, POSITIONS)
    assert initialized(partial(Window.__call__, Window(1, 1)))
    with pytest.raises(ConfigError, match=r"model\.attention: a Window .* use a function of positions"):
        initialized(Window(1, 1))


@pytest.mark.parametrize(("part", "heads"), [((GroupedQuery, GroupedQuerySettings(2)), 2), ((MultiQuery,), 1)])
def test_grouped_heads_are_multi_head_attention_with_equal_keys_and_values(part, heads):
    attention = modified(partial(change, *part))
    params = params_of(attention)
    shapes = {name: kernel.shape for name, kernel in params.items()}
    assert shapes == {"query": (8, 4, 4), "key": (8, heads, 4), "value": (8, heads, 4), "output": (4, 4, 8)}
    empty = empty_cache(attention, params)
    assert [leaf.shape for leaf in jax.tree.leaves(empty)] == [(2, heads, 4, 7), (2, heads, 7, 4)]
    repeated = params | {name: np.repeat(params[name], 4 // heads, axis=1) for name in ("key", "value")}
    actual = applied(attention, params, INPUTS, INPUTS, MASK)
    expected = applied(MultiHeadAttention(**SIZES, value_size=4), repeated, INPUTS, INPUTS, MASK)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("others", [(), ((SoftCap, SoftCapSettings(2.0)),)], ids=["absorbed", "expanded"])
def test_latent_attention_is_multi_head_attention_to_a_product_of_two_kernels_and_caches_the_latent(others):
    makers = {"latent": partial(change, Latent, LatentSettings(6))}
    makers |= {
        f"part{i}": partial(change, *item) for i, item in enumerate((*others, (GroupedQuery, GroupedQuerySettings(2))))
    }
    attention = LatentAttention(**SIZES, value_size=3, makers=tuple(makers.items()))
    params = params_of(attention)
    shapes = {name: kernel.shape for name, kernel in params.items()}
    expected = {"latent_kernel": (8, 6), "query": (8, 4, 4), "key": (6, 2, 4), "value": (6, 2, 3), "output": (4, 3, 8)}
    assert shapes == expected
    down, up = params["latent_kernel"], {name: params[name] for name in ("key", "value")}
    plain = ModifiedAttention(
        **SIZES, value_size=3, makers=tuple(maker for maker in makers.items() if maker[0] != "latent")
    )
    product = params | {name: np.einsum("DC,CGK->DGK", down, kernel) for name, kernel in up.items()}
    product.pop("latent_kernel")
    actual = applied(attention, params, INPUTS, INPUTS, MASK)
    reference = applied(plain, product, INPUTS, INPUTS, MASK)
    np.testing.assert_allclose(actual, reference, atol=1e-5)
    empty = empty_cache(attention, params)
    assert [leaf.shape for leaf in jax.tree.leaves(empty)] == [(2, 1, 6, 7), (2, 1, 7, 0)]

    np.testing.assert_allclose(attended_with_cache(attention, params), reference, atol=1e-5)


GROUPED = {"grouped": (GroupedQuery, GroupedQuerySettings(2))}
DEEPSEEK = {"latent": (Latent, LatentSettings(6, query_width=5, rotary_size=2, has_norms=True))}


def attention_with(parts):
    kinds = {name: kind for name, (kind, _) in parts.items()}
    makers = {name: partial(change, kind, settings) for name, (kind, settings) in parts.items()}
    return class_for(kinds)(**SIZES, value_size=3, makers=tuple(makers.items()))


def attended_with_cache(attention, params):
    @jax.jit
    def attend(params):
        cache = attention.apply({"params": params}, INPUTS, POSITIONS, method="cache_of")
        mask = StepMask(0, MASK.array(), POSITIONS, POSITIONS)
        return attention.apply({"params": params}, INPUTS, cache, mask, method="attend")

    return attend(params)


@pytest.mark.parametrize(
    "parts",
    [
        {"gated": (GatedAttention, GatedSettings("elementwise"))},
        {"gated": (GatedAttention, GatedSettings("headwise"))} | GROUPED,
        {"differential": (DifferentialAttention, DifferentialSettings())},
        {"differential": (DifferentialAttention, DifferentialSettings(0.5))} | GROUPED,
        DEEPSEEK,
        DEEPSEEK | GROUPED,
        {"latent": (Latent, LatentSettings(6, rotary_size=4))},
        {"sink": (Sink, None)} | GROUPED,
    ],
    ids=lambda parts: "-".join(parts),
)
def test_parts_are_the_equations_of_their_papers(parts):
    """In NumPy, from the papers; also from a cache."""
    attention, (name, (_, settings)) = attention_with(parts), next(iter(parts.items()))
    params = params_of(attention)
    inputs = AttentionInputs(*map(np.asarray, (INPUTS, INPUTS, POSITIONS, POSITIONS)), settings, None, SITE)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    expected = getattr(references, name)(exact, inputs, np.asarray(MASK.array()))
    np.testing.assert_allclose(applied(attention, params, INPUTS, INPUTS, MASK), expected, atol=2e-5)
    np.testing.assert_allclose(attended_with_cache(attention, params), expected, atol=2e-5)


def test_changes_of_heads_combine_in_any_order():
    """The gate multiplies the heads that the difference returns, also of a latent with a sink."""
    gated, difference = (GatedAttention, GatedSettings()), (DifferentialAttention, DifferentialSettings())
    others = DEEPSEEK | {"sink": (Sink, None)}
    parts = {"differential": difference, "gated": gated} | others
    params = params_of(attention_with(parts))
    result = applied(attention_with(parts), params, INPUTS, INPUTS, MASK)
    reordered = attention_with({"gated": gated, "differential": difference} | others)
    np.testing.assert_array_equal(applied(reordered, params, INPUTS, INPUTS, MASK), result)
    np.testing.assert_allclose(attended_with_cache(reordered, params), result, atol=1e-5)
    for name in ("gated", "differential", "sink"):
        fewer = {item: part for item, part in parts.items() if item != name}
        params_without = {path: leaf for path, leaf in params.items() if path != f"changes_{name}"}
        without = applied(attention_with(fewer), params_without, INPUTS, INPUTS, MASK)
        assert np.abs(without - result).max() > 1e-3, f"{name} changes the output"


def test_heads_talk_before_and_after_the_softmax():
    attention = modified(partial(change, TalkingHeads))
    params = params_of(attention)
    before, after = random(2, 4, 4), random(3, 4, 4)
    params |= {"changes_part0": {"mix_scores": before, "mix_weights": after}}
    _, sown = applied(attention, params, INPUTS, INPUTS, MASK, mutable=["intermediates"])
    query, key = (np.einsum("BLD,DHK->BHLK", INPUTS, params[name]) for name in ("query", "key"))
    scores = np.exp(np.einsum("BHQK,BHMK,HJ->BJQM", query, key, before) / 2) * np.tri(5)
    expected = np.einsum("BHQM,HJ->BJQM", scores / scores.sum(-1, keepdims=True), after)
    np.testing.assert_allclose(sown["intermediates"]["attention_weights"][0], expected, atol=1e-4)


def test_weights_that_do_not_add_up_to_one():
    query, key, value = (np.asarray(random(key, 1, 1, 3, 2)) for key in range(3))
    mask = np.array([[[True, False, False], [True, True, False], [False, False, False]]])
    scores = np.asarray(query[0, 0] @ key[0, 0].T, np.float64) / np.sqrt(2)

    def weights(denominator=None, **mods):
        attend = partial(modified_attention, options=AttentionOptions(None, FLOAT32, None, denominator), **mods)
        return jax.jit(attend)(query, key, value, mask)[1][0, 0]

    exponentials = np.exp(scores) * mask[0]
    of_one = exponentials / (1 + exponentials.sum(-1, keepdims=True))
    of_sink = exponentials / (np.exp(0.7) + exponentials.sum(-1, keepdims=True))
    differences = (np.exp(scores) - 1) * mask[0]
    picked = np.maximum(differences, 0) / (np.abs(differences).sum(-1, keepdims=True) + 1e-8)
    one, learned, pick = (change(item, num_heads=1) for item in (SoftmaxOne, Sink, Softpick))
    learned = learned.bind({"params": {"sinks": jnp.full(1, 0.7)}})
    for part, expected in ((one, of_one), (learned, of_sink), (pick, picked)):
        np.testing.assert_allclose(weights(part.denominator_mod()), expected, rtol=1e-5)
    expected = mask[0] / (1 + np.exp(-scores) * np.maximum(mask[0].sum(-1, keepdims=True), 1))
    np.testing.assert_allclose(weights(weights_mod=sigmoids), expected, rtol=1e-5)


def test_a_change_of_attention_made_for_embeddings_is_named():
    register("positions", "everywhere")(lambda settings, model, site: TalkingHeads.of(settings, model, site))
    with pytest.raises(ConfigError, match="TalkingHeads.of was called for site.kind='embedding'.*return None there"):
        shapes_of(positions="everywhere")


def test_a_part_that_reads_its_layer_is_refused_where_layers_are_scanned():
    @register("attention", "by_layer")
    class ByLayer(AttentionChange):
        def queries(self, query_BHQK, positions):
            return query_BHQK * (1 + self.site.layer)

    assert shapes_of(attention="by_layer", rematerialize="full")
    with pytest.raises(ConfigError, match="model.scan_layers: by_layer depends on its layer; use scan_layers=False"):
        shapes_of(attention="by_layer", scan_layers=True)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"attention": "biased,qk_norm"}, "model.attention: biased takes no changes"),
        ({"attention": "a_function"}, "a_function must subclass AttentionChange or .*; register a class"),
        ({"attention": "grouped_query,multi_query"}, "grouped_query and multi_query both choose"),
        ({"positions": "rope"}, "parts.rope.share: 0.1 of 4 dimensions is less"),
        ({"attention": "grouped_query"}, "model.num_heads: 4 heads are not divisible by 3 key-value"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, problem):
    register("attention", "a_function")(type("Other", (), {}))
    register("attention", "a_whole")(MultiHeadAttention)
    parts = {"grouped_query": GroupedQuerySettings(3), "rope": RopeSettings(share=0.1)}
    with pytest.raises(ConfigError, match=problem):
        shapes_of(parts, **settings)


def test_parameters_of_changes_are_replicated():
    def shardings(mesh, parts=None, **settings):
        result = state_shardings(shapes_of(parts, **settings), make_mesh(MeshConfig(**mesh)))
        return result["decoder_layers_0"]["self_attention"]

    attention = shardings({"fsdp": 2, "tensor": 2, "data": 2}, attention="multi_query,qk_norm", positions="shaw")
    assert attention["changes_shaw"]["relative"].is_fully_replicated
    assert attention["key"].spec == P("fsdp", None, None), "one head is not split"
    parts = {"grouped_query": GroupedQuerySettings(2)}
    attention = shardings({"tensor": 4, "data": 2}, parts, attention="grouped_query")
    assert (attention["query"].spec, attention["value"].spec) == (P("fsdp", "tensor", None), P("fsdp", None, None))
