"""Which variants a search compiles, and in which order; the compiler is replaced by arithmetic."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig, RnnConfig, TransformerConfig
from transformer_jax.config.data import BatchingConfig, DataConfig, TokenizerConfig
from transformer_jax.tools.preflight import search as searching
from transformer_jax.tools.preflight.chips import CHIPS, Topology
from transformer_jax.tools.preflight.search import flags_of, meshes, search

TOPOLOGY = Topology("v5e:2x2", jax.devices()[:4], CHIPS["v5e"])
CONFIG = ExperimentConfig(
    data=DataConfig(max_source_tokens=15, max_target_tokens=15),
    tokenizer=TokenizerConfig(vocabulary_size=64),
    batching=BatchingConfig(kind="buckets", tokens_per_update=1024, row_multiple=8),
    model=TransformerConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32, num_heads=4),
)
RELIEF = {"none": 1.0, "keep_projections": 0.8, "full": 0.3}


def tried(monkeypatch, config: ExperimentConfig, capacity: float, limit: int = 12) -> list[tuple]:
    """Mesh, tokens and policy of each variant, and whether it fits into a capacity in tokens on all devices."""
    told = []

    def compiled(variant, topology, length):
        policy = getattr(variant.model, "rematerialize", "none")
        return SimpleNamespace(fits=variant.batching.tokens_per_update * RELIEF[policy] <= capacity)

    def tell(variant, program):
        mesh = variant.mesh
        policy = getattr(variant.model, "rematerialize", "none")
        told.append(((mesh.data, mesh.fsdp, mesh.tensor), variant.batching.tokens_per_update, policy, program.fits))

    monkeypatch.setattr(searching, "compile_program", compiled)
    fitting = search(config, TOPOLOGY, 0, limit, tell)
    assert len(fitting) == sum(fits for *_, fits in told)
    return told


def test_what_fits_gets_more_tokens(monkeypatch):
    whole = (4, 1, 1)
    assert tried(monkeypatch, CONFIG, 3000)[:4] == [
        (whole, 1024, "none", True),
        (whole, 2048, "none", True),
        (whole, 4096, "none", False),
        ((1, 4, 1), 1024, "none", True),
    ]


def test_what_does_not_fit_computes_again_and_then_gets_fewer_tokens(monkeypatch):
    whole = (4, 1, 1)
    refused = [(whole, 1024, policy, False) for policy in ("none", "keep_projections")]
    assert tried(monkeypatch, CONFIG, 500)[:4] == [
        *refused,
        (whole, 1024, "full", True),
        ((1, 4, 1), 1024, "none", False),
    ]
    assert tried(monkeypatch, CONFIG, 100)[2:6] == [
        (whole, 1024, "full", False),
        (whole, 512, "full", False),
        (whole, 256, "full", True),
        ((1, 4, 1), 1024, "none", False),
    ]


def test_the_limit_is_of_all_meshes_together(monkeypatch):
    found = tried(monkeypatch, CONFIG, 0, limit=12)
    assert [mesh for mesh, *_ in found] == [(4, 1, 1)] * 5 + [(1, 4, 1)] * 5 + [(2, 2, 1)] * 2


def test_a_model_that_cannot_compute_again_only_gets_fewer_tokens(monkeypatch):
    config = replace(CONFIG, model=RnnConfig(d_embedding=16, d_hidden=16))
    assert [tokens for _, tokens, *_ in tried(monkeypatch, config, 0, limit=4)] == [1024, 512, 256, 1024]


def test_what_hinders_every_variant_is_the_error_of_the_search():
    config = replace(CONFIG, model=replace(CONFIG.model, attention_backend="cudnn"))
    with pytest.raises(ConfigError, match=r"model.attention_backend: cudnn needs an NVIDIA GPU"):
        search(config, TOPOLOGY, 0, 2, lambda variant, program: None)


def test_the_mesh_of_the_recipe_comes_first():
    assert meshes(MeshConfig(), 8)[0] == MeshConfig(data=8)
    assert meshes(MeshConfig(fsdp=-1, data=2), 8)[0] == MeshConfig(data=2, fsdp=4)
    assert meshes(MeshConfig(data=2, tensor=4), 8)[0] == MeshConfig(data=2, tensor=4)
    # One that needs other devices is none of these.
    assert meshes(MeshConfig(data=16), 8)[0] == MeshConfig(data=1, fsdp=8)
    assert all(mesh.data * mesh.fsdp * mesh.tensor == 6 for mesh in meshes(MeshConfig(), 6))


@pytest.mark.parametrize("asked", [MeshConfig(data=1, context=-1), MeshConfig(context=8)])
def test_sequences_are_split_as_the_recipe_does(asked):
    assert [mesh.sizes for mesh in meshes(asked, 8)] == [{"data": 1, "fsdp": 1, "context": 8, "tensor": 1}]
    with pytest.raises(ConfigError, match="mesh.context: 8 does not divide the 12 devices"):
        meshes(MeshConfig(context=8), 12)


def test_flags_of_a_variant():
    assert flags_of(replace(CONFIG, mesh=MeshConfig(data=2, tensor=2))) == (
        "--config.mesh.data=2 --config.mesh.fsdp=1 --config.mesh.context=1 --config.mesh.tensor=2 "
        "--config.batching.tokens_per_update=1024 --config.batching.row_multiple=8 --config.model.rematerialize=none"
    )
