"""Does the attention of the device equal the reference, forward and backward?

    python experiments/benchmarks/attention_parity.py --backend=cudnn

For masks of padding, causality, both, packed rows, and packed targets to packed sources of another
width, at several lengths, in bfloat16: the largest difference between the backend's output and
gradients and einsum attention in float32, over the largest entry, beside the same for einsum
attention in bfloat16, and the seconds of forward and backward of each (median). Prints JSON; exit
status 1 when a difference is more than twice the difference of einsum in bfloat16, and 0.02.
"""

import argparse
import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.config import MeshConfig, TransformerConfig
from transformer_jax.layers.attention_backends import AttentionBackend, EinsumAttention
from transformer_jax.layers.blockwise_attention import BlockwiseAttention
from transformer_jax.layers.masks import SentenceMask
from transformer_jax.layers.scaled_dot_product import AttentionOptions
from transformer_jax.models.devices import attention_of
from transformer_jax.precision import POLICIES
from transformer_jax.training.sharding import make_mesh

BACKENDS = "cudnn", "blockwise"
HEADS, SIZE = 8, 64
ALLOWED = 0.02


def main() -> None:
    """Prints every difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=BACKENDS, default="cudnn")
    parser.add_argument("--lengths", default="256,512,1024")
    parser.add_argument("--positions", type=int, default=8192)
    arguments = parser.parse_args()
    found = [
        compared(arguments.backend, name, int(length), max(arguments.positions // int(length), 1))
        for length in arguments.lengths.split(",")
        for name in ("padding", "causal", "packed", "packed causal", "packed to a source")
    ]
    print(json.dumps(found))
    sys.exit(int(any(row["difference"] > max(ALLOWED, 2 * row["einsum_difference"]) for row in found)))


def compared(backend_name: str, name: str, length: int, rows: int) -> dict:
    """One mask at one length."""
    mask = mask_of(name, length, rows)
    backend: AttentionBackend = BlockwiseAttention()
    if backend_name == "cudnn":
        config = TransformerConfig(compute_dtype="bfloat16", attention_backend="cudnn")
        mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
        backend = attention_of(config, mesh, one_sentence=not name.startswith("packed"))
    keys = jax.random.split(jax.random.key(0), 4)
    lengths = length, *[mask.key_segments.shape[1]] * 2
    arrays = [
        jax.random.normal(key, (rows, HEADS, length, SIZE)) for key, length in zip(keys[:3], lengths, strict=True)
    ]
    direction = jax.random.normal(keys[3], arrays[0].shape)
    exact, _ = outputs(EinsumAttention(), mask, arrays, direction, "float32_exact")
    found, seconds = outputs(backend, mask, arrays, direction, "bfloat16")
    einsum, einsum_seconds = outputs(EinsumAttention(), mask, arrays, direction, "bfloat16")
    return {
        "mask": name,
        "length": length,
        "rows": rows,
        "difference": largest(found, exact),
        "einsum_difference": largest(einsum, exact),
        "seconds": seconds,
        "einsum_seconds": einsum_seconds,
    }


def mask_of(name: str, length: int, rows: int) -> SentenceMask:
    """Of rows of different lengths, or of four sentences each."""
    places, row = np.arange(length)[None, :], np.arange(rows)[:, None]
    ends = length - row * length // (2 * rows)
    segments = 1 + places * 4 // length if name.startswith("packed") else np.ones((1, length), np.int64)
    ids = jnp.asarray(np.where(places < ends, segments, 0), jnp.int32)
    # Sources are shorter, and their sentences have other lengths: every third token is missing.
    keys = jnp.delete(ids, jnp.arange(1, length, 3), axis=1) if name == "packed to a source" else ids
    return SentenceMask(ids, keys, is_causal="causal" in name)


def outputs(
    backend: AttentionBackend, mask: SentenceMask, arrays: list[jax.Array], direction: jax.Array, policy: str
) -> tuple[list[jax.Array], float]:
    """Heads and gradients of the positions that are tokens, and the seconds of both."""
    is_token = (mask.query_segments != 0)[:, None, :, None]

    @jax.jit
    def run(mask: SentenceMask, *arrays: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
        def value(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
            heads = jnp.where(is_token, backend(*arrays, mask, AttentionOptions(None, POLICIES[policy])), 0.0)
            return jnp.sum(heads * direction), heads

        return jax.grad(value, argnums=(0, 1, 2), has_aux=True)(*arrays)

    gradients, heads = jax.block_until_ready(run(mask, *arrays))
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(run(mask, *arrays))
        seconds.append(time.perf_counter() - began)
    return [heads, *gradients], statistics.median(seconds)


def largest(found: list[jax.Array], exact: list[jax.Array]) -> float:
    """The largest difference of output and gradients over the largest entry of each."""
    return max(
        float(jnp.abs(one - other).max() / jnp.abs(other).max()) for one, other in zip(found, exact, strict=True)
    )


if __name__ == "__main__":
    main()
