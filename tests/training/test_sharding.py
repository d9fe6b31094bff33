"""Devices of several slices: the first axes run over the slow network, the others stay within a
slice."""

from dataclasses import dataclass

import numpy as np
import pytest

from transformer_jax.config import ConfigError
from transformer_jax.training.sharding import laid_out


@dataclass(frozen=True)
class Device:
    """As much of one as a layout asks for."""

    id: int
    slice_index: int
    platform: str = "cpu"
    device_kind: str = "cpu"


# Not in the order of the slices.
DEVICES = [Device(id, id % 4) for id in range(32)]


@pytest.mark.parametrize(
    ("sizes", "between"),
    [
        ((32, 1, 1, 1), (4, 1, 1, 1)),
        ((4, 4, 1, 2), (4, 1, 1, 1)),
        ((2, 8, 2, 1), (2, 2, 1, 1)),
        ((1, 2, 2, 8), (1, 2, 2, 1)),
    ],
)
def test_the_first_axes_run_between_slices(sizes, between):
    laid = laid_out(DEVICES, sizes)
    assert {device.id for device in laid.flat} == set(range(32))
    slices = np.vectorize(lambda device: device.slice_index)(laid)
    assert slices.shape == sizes
    # Along each axis as many slices as there are to be, and each in one piece.
    for axis, expected in enumerate(between):
        lines = np.moveaxis(slices, axis, -1).reshape(-1, sizes[axis])
        assert {len(set(line)) for line in lines.tolist()} == {expected}
        assert (np.diff(lines, axis=1) != 0).sum(axis=1).tolist() == [expected - 1] * len(lines)


def test_slices_of_different_sizes_are_refused():
    with pytest.raises(ConfigError, match=r"slices of \[4, 8\] devices"):
        laid_out([Device(id, id // 8) for id in range(12)], (12, 1, 1, 1))
