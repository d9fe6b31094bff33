"""The shortest time that a step can take on a chip: what computing, memory and interconnect each need at full speed."""

from typing import NamedTuple

from transformer_jax.preflight.chips import Chip
from transformer_jax.preflight.program import Program


class Roofline(NamedTuple):
    """Seconds a step that each resource is busy (Williams et al. 2009); a step takes at least the longest of them."""

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        """A lower bound of the time of a step, reached if the three overlap perfectly."""
        return max(self)

    @property
    def bound(self) -> str:
        """Which resource that is."""
        return max(zip(self, self._fields, strict=True))[1]


def roofline(program: Program, chip: Chip) -> Roofline:
    """Of one device: its share of the products, its memory traffic, and what it sends around the rings it is in."""
    devices = 1
    for size in program.mesh.values():
        devices *= size
    sent = sum(collective.wire_bytes for collective in program.collectives)
    return Roofline(
        compute=program.model_flops / devices / chip.flops,
        memory=program.traffic / chip.memory_bandwidth,
        interconnect=sent / chip.ring_bandwidth,
    )
