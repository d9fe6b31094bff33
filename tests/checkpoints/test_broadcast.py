"""Reading an array from one replica, and its broadcast to the others."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.checkpoints.broadcast import broadcast, read_once
from transformer_jax.config import MeshConfig
from transformer_jax.training.sharding import make_mesh


def test_every_shard_is_read_by_one_device_and_every_replica_gets_its_bits(monkeypatch):
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2), jax.devices()[:8])
    tree = {
        "a": (jnp.array([[-0.0, jnp.nan], [1e-40, 3.0]]), P("fsdp", "tensor")),
        "b": (jnp.array([-0.0, 2.0], jnp.bfloat16), P("fsdp")),
        "c": (jnp.array([True, False]), P()),
        "d": (jnp.arange(8), P(("data", "fsdp", "tensor"))),
        "e": (jnp.int32(7), P()),
    }
    wanted = {name: jax.device_put(leaf, NamedSharding(mesh, spec)) for name, (leaf, spec) in tree.items()}
    wanted["f"] = np.ones(3)
    assert read_once(wanted) is wanted, "one process reads all"
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    described = read_once(wanted)
    devices = {name: described[name].sharding.device_set for name in tree}
    assert {name: len(found) for name, found in devices.items()} == {"a": 4, "b": 2, "c": 1, "d": 8, "e": 1}
    assert not devices["a"] & devices["e"], "replicas read equal parts of the bytes"
    parts = {name: jax.device_put(leaf, described[name].sharding) for name, (leaf, _) in tree.items()}
    found = broadcast(parts | {"f": wanted["f"]}, wanted)
    for name, leaf in wanted.items():
        assert isinstance(leaf, np.ndarray) or found[name].sharding == leaf.sharding
        assert np.asarray(found[name]).tobytes() == np.asarray(leaf).tobytes()
        for shard in getattr(found[name], "addressable_shards", []):
            assert np.asarray(shard.data).tobytes() == np.asarray(leaf)[shard.index].tobytes()
