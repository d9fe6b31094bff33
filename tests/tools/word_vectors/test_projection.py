"""Two dimensions: what lies in a plane keeps its distances, and t-SNE keeps groups together."""

import numpy as np
import pytest
from libraries import library

from transformer_jax.config import ConfigError, DataError
from transformer_jax.tools.word_vectors.projection import analogy_plane, project

library("sklearn", "vectors")


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def test_a_true_parallelogram_stays_one():
    a, b, c = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.6, 0, 0.8, 0]])
    vectors = np.stack([a, b, c, b - a + c]).astype(np.float32)
    points, target = analogy_plane(vectors)
    np.testing.assert_allclose(points[1] - points[0], target - points[2], atol=1e-6)
    np.testing.assert_allclose(distances(points[:3]), distances(np.stack([a, b, c])), rtol=0.2)


def test_too_little_for_a_map():
    with pytest.raises(DataError, match=r"three words of two dimensions or more, found \[2, 5\]"):
        project(np.eye(2, 5, dtype=np.float32), "pca")
    with pytest.raises(ConfigError, match="--method: 'umap' is not one of pca, tsne"):
        project(np.eye(5, dtype=np.float32), "umap")
