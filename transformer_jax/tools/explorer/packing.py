"""Arrays small enough for a page: 8 bits with square-root steps, deflate, base 64."""

import base64
import zlib
from typing import Any

import numpy as np

from transformer_jax.tools.explorer.reading import NamedArray

STEPS, SIGNED_STEPS = 255, 127
DEFLATE_LEVEL, WINDOW_BITS, MEMORY_LEVEL = 9, 15, 9
# Which of them is best depends on how diffuse attention is.
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY)


def quantized(values: np.ndarray, least_scale: float = 0.0) -> tuple[np.ndarray, float]:
    """Bytes and the largest magnitude, or ``least_scale``: small values get fine steps, since attention has few large ones.

    Without negative values ``round(255 sqrt(v / largest))``; with them the sign times ``round(127 sqrt(|v| / largest))``, plus
    128. An error is at most ``sqrt(v largest) / 255``, or twice that with signs, and a quarter step.
    """
    largest = float(np.abs(values).max(initial=least_scale))
    roots = np.sqrt(np.abs(values) / (largest or 1.0))
    if (values < 0).any():
        return (128 + np.sign(values) * np.rint(SIGNED_STEPS * roots)).astype(np.uint8), largest
    return np.rint(STEPS * roots).astype(np.uint8), largest


def deflated(data: bytes) -> bytes:
    """The shortest of what the strategies of zlib make of ``data``."""
    compressors = [
        zlib.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL, strategy) for strategy in STRATEGIES
    ]
    return min((each.compress(data) + each.flush() for each in compressors), key=len)


class Blocks:
    """The packed arrays of a page, by number; each is unpacked only when it is looked at."""

    def __init__(self) -> None:
        self.packed: list[str] = []

    def add(self, array: NamedArray, least_scale: float = 0.0) -> dict[str, Any]:
        """Packs an array; returns its description: axes, shape, largest magnitude, whether signed, number of the block."""
        steps, largest = quantized(array.values, least_scale)
        self.packed.append(base64.b64encode(deflated(np.ascontiguousarray(steps).tobytes())).decode("ascii"))
        return {
            "axes": list(array.axes),
            "shape": list(array.values.shape),
            "largest": largest,
            "signed": bool((array.values < 0).any()),
            "block": len(self.packed) - 1,
        }

    def add_layers(self, array: NamedArray, least_scale: float = 0.0) -> list[dict[str, Any]]:
        """The same for every entry of the first axis, a block each."""
        return [self.add(NamedArray(array.axes[1:], layer), least_scale) for layer in array.values]
