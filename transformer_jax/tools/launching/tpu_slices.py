"""Slices of TPUs by kind and topology: how many chips and hosts they are, and their names on GKE.

From Google's pages: cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e} (shapes, chips a VM) and
cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (values of the node selectors).
"""

import math
from typing import NamedTuple

from transformer_jax.config import ConfigError

FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
CUBIC = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
LARGEST_HOST = 8
CHIPS_OF_A_HOST_AMONG_SEVERAL = 4


class TpuKind(NamedTuple):
    """``gke``: its node selector."""

    gke: str
    topologies: tuple[str, ...]


KINDS = {
    "v4": TpuKind("tpu-v4-podslice", CUBIC),
    "v5e": TpuKind("tpu-v5-lite-podslice", FLAT),
    "v5p": TpuKind("tpu-v5p-slice", (*CUBIC, "16x16x16")),
    "v6e": TpuKind("tpu-v6e-slice", FLAT),
}


class TpuSlice(NamedTuple):
    """A slice, one process a host and one JAX device a chip."""

    kind: TpuKind
    topology: str

    @property
    def num_chips(self) -> int:
        """Chips, and devices, of all hosts."""
        return math.prod(map(int, self.topology.split("x")))

    @property
    def num_hosts(self) -> int:
        """Virtual machines. Up to eight chips of v5e and v6e are one; otherwise each has four."""
        if self.topology.count("x") == 1 and self.num_chips <= LARGEST_HOST:
            return 1
        return self.num_chips // CHIPS_OF_A_HOST_AMONG_SEVERAL


def parse_slice(text: str) -> TpuSlice:
    """``v5e:4x4`` as a slice; raises ConfigError, with those that there are, for one that Google does not offer."""
    name, _, topology = text.partition(":")
    if name not in KINDS:
        raise ConfigError(f"--tpu: {text!r} is not KIND:TOPOLOGY such as v5e:4x4; kinds: {', '.join(KINDS)}")
    if topology not in KINDS[name].topologies:
        raise ConfigError(f"--tpu: {name} has no slice {topology!r}; slices: {', '.join(KINDS[name].topologies)}")
    return TpuSlice(KINDS[name], topology)
