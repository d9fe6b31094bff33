"""The least bytes that a training step must move to and from memory, by hand: formulas in the
dimensions of the model.

Kernels are those that libraries have: products with what is elementwise fused into them, attention
that keeps no scores, one pass for a residual sum with its norm. ``docs/internals/roofline.md``
derives each line.
"""

from typing import NamedTuple

HALF, FULL = 2, 4
"""Bytes of a bfloat16 and of a float32."""
ROWS_OF_LOGITS = 12
"""Bytes a logit: written by the product, read for its softmax, read and written as its gradient,
read by two products."""


class Dimensions(NamedTuple):
    """Positions of each side on a device, layers, widths, vocabulary and parameters of an
    encoder-decoder with one table."""

    positions: int
    encoder_layers: int
    decoder_layers: int
    d_model: int
    d_ff: int
    vocabulary: int
    parameters: int


def product(width_in: int, width_out: int) -> int:
    """Bytes a position of a product and its two gradients: each reads two of input, output and
    gradients and writes one."""
    return HALF * 3 * (width_in + width_out)


def least_traffic(of: Dimensions) -> dict[str, int]:
    """Bytes by kind, as ``traffic_by_kind`` names them."""
    d, f, n = of.d_model, of.d_ff, of.positions
    layers = of.encoder_layers + of.decoder_layers
    attentions = of.encoder_layers + 2 * of.decoder_layers
    sublayers = 2 * of.encoder_layers + 3 * of.decoder_layers
    self_attention = product(d, 3 * d) + product(d, d)
    cross_attention = product(d, d) + product(d, 2 * d) + product(d, d)
    feed_forward = product(d, f) + product(f, d)
    layer_products = layers * (self_attention + feed_forward) + of.decoder_layers * cross_attention
    weights = of.parameters - of.vocabulary * d
    return {
        # Weights are read by two of the products in bfloat16, the third writes their gradient.
        "products of layers": n * layer_products + (2 * HALF + FULL) * weights,
        # Forward q, k, v are read and the heads written; backward these and the heads' gradient are
        # read, three written.
        "attention": n * attentions * HALF * (4 + 8) * d,
        # A sublayer's output and the residual sum are read; the new sum is written, and its norm
        # for the next product. Backward the gradient and the norm are read, the gradients of sum
        # and sublayer written.
        "norms, residuals, dropout": n * sublayers * (HALF + FULL + FULL + HALF) * 2 * d,
        # The gradient of ReLU reads its result.
        "casts, biases, activations": n * layers * HALF * f,
        "logits and loss": n * (ROWS_OF_LOGITS * of.vocabulary + product(d, 0)) + (2 * HALF + FULL) * of.vocabulary * d,
        # A row of the table is read and written as the residual sum; its gradient is read and added
        # to a row.
        "embeddings": 2 * n * (FULL + FULL + FULL + 2 * FULL) * d,
        # Parameters and both moments are read and written, gradients read twice (norm, update),
        # bfloat16 parameters written.
        "optimizer": (6 * FULL + 2 * FULL + HALF) * of.parameters,
    }
