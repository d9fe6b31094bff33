"""Roofline: the time a step would keep a chip's compute, memory and interconnect busy, each at its full speed."""

import math
from typing import NamedTuple

from transformer_jax.tools.preflight.chips import Chip
from transformer_jax.tools.preflight.program import Program


class Roofline(NamedTuple):
    """Seconds a step that each resource is busy (Williams et al. 2009), estimated.

    ``compute``: the matrix products of the step, those computed again included. ``memory``: what the step's
    instructions read and write, each for itself.
    ``interconnect``: the busiest axis of the torus, in both directions and around, if each collective uses all axes along
    which its members differ; of GPUs NVLink or the network, which also connects slices of TPUs.
    """

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        """An estimate of the time of a step: the longest of the three, as if they overlapped perfectly."""
        return max(self)

    @property
    def bound(self) -> str:
        """Name of that resource."""
        return max(zip(self, self._fields, strict=True))[1]


def roofline(program: Program, chip: Chip) -> Roofline:
    """Of one device."""
    return Roofline(
        compute=program.flops / chip.peak(program.compute_dtype),
        memory=program.traffic / chip.memory_bandwidth,
        interconnect=max((program.sent.get(axis, 0.0) / link for axis, link in chip.links.items()), default=0.0),
    )


def positions_per_second(program: Program, chip: Chip) -> float:
    """Target positions a second on all devices, if a step takes what the roofline says."""
    return program.positions / roofline(program, chip).seconds


def model_flops_utilization(program: Program, chip: Chip) -> float:
    """The share of the chip's speed that goes into products that a step cannot do without, if it takes that long (MFU)."""
    useful = program.model_flops / math.prod(program.mesh.values()) / chip.peak(program.compute_dtype)
    return useful / roofline(program, chip).seconds
