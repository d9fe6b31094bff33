"""Makers of initializations and of recurrent attention get their settings and their site."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from transformer_jax.config import RnnConfig, TransformerConfig, setting
from transformer_jax.layers.rnn_attention import ContentAttention, DotScore, WholeSource
from transformer_jax.layers.site import Site
from transformer_jax.models.build import build_model
from transformer_jax.models.initialization import initialized, site_of
from transformer_jax.models.interface import init_params
from transformer_jax.registry.plugins import register

SMALL = TransformerConfig(8, 8, 2, num_encoder_layers=2, num_decoder_layers=1, normalization="pre", tying="none")


def test_every_parameter_has_the_site_of_its_part():
    sites = {
        "encoder_layers_1/self_attention/query": Site("encoder", "self", 2, False, 1),
        "encoder_layers_0/feed_forward_residual/norm/scale": Site("encoder", "feed_forward", 2, False, 0),
        "decoder_layers_0/cross_attention/changes_mine/gain": Site("decoder", "cross", 1, False, 0),
        "decoder_norm/scale": Site("decoder", "self", 1, True),
        "source_embedding/table": Site("encoder", "embedding", 2, False),
        "target_positions/table": Site("decoder", "embedding", 1, True),
        "target_positions/norm/scale": Site("decoder", "embedding", 1, True),
        "source_positions/projection_kernel": Site("encoder", "embedding", 2, False),
        "projection/table": Site("decoder", "projection", 1, True),
    }
    assert {path: site_of(path, SMALL) for path in sites} == sites


def test_an_initialization_scales_by_the_site():
    @register("initialization", "by_layer")
    def by_layer(settings, config, site, path):
        return 2.0 + site.layer if site.kind == "feed_forward" and site.stack == "encoder" else 1.0

    config = TransformerConfig(**vars(SMALL) | {"initialization": "by_layer"})
    ones = {f"{stack}_layers_0": {"feed_forward": {"wide_kernel": jnp.ones(2)}} for stack in ("encoder", "decoder")}
    ones["encoder_layers_1"] = ones["encoder_layers_0"]
    result = initialized(lambda key: ones, config, {}, jax.random.key(0))
    scales = {name: float(layer["feed_forward"]["wide_kernel"][0]) for name, layer in result.items()}
    assert scales == {"encoder_layers_0": 2.0, "encoder_layers_1": 3.0, "decoder_layers_0": 1.0}


def test_attention_of_recurrent_models_has_settings_and_a_site():
    calls = []

    @dataclass(frozen=True)
    class Settings:
        size: int = setting(3, "A number.")

    @register("rnn_attention", "noted", settings=Settings)
    def noted(settings, config, site, *, precision):
        calls.append((settings.size, site))
        return ContentAttention(DotScore, WholeSource, precision)

    config = RnnConfig(attention="noted", d_hidden=4, d_embedding=4, bidirectional_encoder=False)
    jax.eval_shape(lambda key: init_params(build_model(config, 9, 9), key), jax.random.key(0))
    assert set(calls) == {(3, Site("decoder", "cross", 1, False, part="noted"))}
