"""Studies in a folder of the test."""

import pytest

from transformer_jax.tools.sweeps.study import open_study


@pytest.fixture
def join(tmp_path):
    """``join(sweep)`` opens the study as one more worker would, with connections of its own."""
    return lambda sweep: open_study(sweep, tmp_path, "study", 60.0)
