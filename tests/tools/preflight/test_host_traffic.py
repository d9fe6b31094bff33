"""Bytes of checkpoints and of token ids that hosts write and read."""

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from transformer_jax.config import MeshConfig
from transformer_jax.tools.preflight.host_traffic import HostTraffic, host_traffic
from transformer_jax.training.sharding import batch_sharding, make_mesh


def traffic(mesh: MeshConfig, num_hosts: int, **specs: tuple[tuple[int, ...], P]) -> HostTraffic:
    """Of float32 arrays, and of 16 rows of 10 ids of two bytes, on eight devices; ``a`` is not restored."""
    devices = make_mesh(mesh, jax.devices()[:8])
    saved = {
        name: jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(devices, spec))
        for name, (shape, spec) in specs.items()
    }
    restored = {name: leaf for name, leaf in saved.items() if name != "a"}
    ids = jax.ShapeDtypeStruct((16, 10), np.uint16, sharding=batch_sharding(devices))
    return host_traffic(saved, restored, ids, lambda device: device.id * num_hosts // 8)


def test_a_host_writes_its_shards_and_parts_of_replicated_arrays():
    arrays = {"x": ((16, 4), P("fsdp")), "y": ((16,), P()), "z": ((3,), P())}
    size = 4 * (16 * 4 + 16 + 3)
    # Each of the eight devices writes an eighth of x and of y; they cannot divide z, which the first one writes.
    assert traffic(MeshConfig(data=2, fsdp=4), 1, **arrays)[:3] == (1, size, size)
    assert traffic(MeshConfig(data=2, fsdp=4), 2, **arrays)[:3] == (2, size, 4 * (32 + 8 + 3))
    assert traffic(MeshConfig(data=1, fsdp=8), 4, **arrays)[:3] == (4, size, 4 * (16 + 4 + 3))
    # Hosts of three, three and two devices.
    assert traffic(MeshConfig(data=8), 3, **arrays)[:3] == (3, size, 4 * (3 * 8 + 3 * 2 + 3))


def test_a_host_reads_its_shards_of_one_replica():
    arrays = {"a": ((8,), P()), "x": ((16, 4), P("fsdp")), "y": ((16, 4), P("fsdp"))}
    # With a replica on each host, the first reads x, the second y.
    assert traffic(MeshConfig(data=2, fsdp=4), 2, **arrays).read_at_resume == 4 * 64
    # Each host has half of the one replica, or two shards of both.
    assert traffic(MeshConfig(data=1, fsdp=8), 2, **arrays).read_at_resume == 4 * 64
    assert traffic(MeshConfig(data=1, fsdp=8), 4, **arrays).read_at_resume == 4 * 32
    assert traffic(MeshConfig(data=1, fsdp=8), 1, **arrays) == (1, 4 * 136, 4 * 136, 4 * 128, 16 * 10 * 2)


def test_a_host_reads_the_rows_of_its_devices_once():
    arrays, split = {"x": ((8,), P())}, MeshConfig(data=2, tensor=4)
    # Four devices that split the model have the same eight rows.
    found = [traffic(split, hosts, **arrays).read_for_update for hosts in (1, 2, 4)]
    assert found == [16 * 10 * 2, 8 * 10 * 2, 8 * 10 * 2]
    assert traffic(MeshConfig(data=8), 4, **arrays).read_for_update == 4 * 10 * 2
