"""Tying of the three vocabulary matrices."""

from collections.abc import Callable

from transformer_jax.layers.embedding import Embedding

MakeEmbedding = Callable[[int], Embedding]
"""An embedding for a vocabulary of a given size."""


def tied_embeddings(
    tying: str, embedding: MakeEmbedding, output: MakeEmbedding, source_size: int, target_size: int
) -> tuple[Embedding, Embedding, Embedding]:
    """Source embedding, target embedding and output projection; sharing a matrix is being the same object.

    ``tying``: ``all`` three (Vaswani et al. 2017, section 3.4), the two ``embeddings``, target embedding and ``output`` (Press
    and Wolf 2017), ``none``.
    """
    source, target, projection = embedding(source_size), embedding(target_size), output(target_size)
    return {
        "all": (source, source, source),
        "embeddings": (source, source, projection),
        "output": (source, target, target),
        "none": (source, target, projection),
    }[tying]
