"""Projection of vectors to two dimensions by scikit-learn: principal components or t-SNE."""

import numpy as np

from transformer_jax.errors import ConfigError, DataError

PERPLEXITY = 30.0


def project(matrix: np.ndarray, method: str, seed: int = 0) -> np.ndarray:
    """Project the rows of ``[N, D]``, divided by their norms, to float64 points ``[N, 2]``.

    ``pca`` is two principal components, ``tsne`` t-SNE (van der Maaten and Hinton 2008) of cosine
    distances, initialized with them.
    """
    if len(matrix) < 3 or matrix.shape[1] < 2:
        raise DataError(f"a map needs at least three words and two dimensions, not {list(matrix.shape)}")
    if not matrix.any():
        raise DataError("a map needs vectors that are not all zero")
    try:
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise ConfigError("scikit-learn is not installed", remedy="pip install scikit-learn scipy") from None
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = matrix / np.where(norms > 0, norms, 1).astype(np.float32)
    if method == "pca":
        return np.asarray(PCA(n_components=2, svd_solver="full").fit_transform(unit), np.float64)
    perplexity = min(PERPLEXITY, (len(matrix) - 1) / 3)
    options = {"perplexity": perplexity, "metric": "cosine", "init": "pca", "random_state": seed, "n_jobs": 1}
    # With one thread the result does not depend on the number of cores, and OpenMP does not spin.
    with threadpool_limits(1, user_api="openmp"):
        return np.asarray(TSNE(n_components=2, **options).fit_transform(unit), np.float64)
