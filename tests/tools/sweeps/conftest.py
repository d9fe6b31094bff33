"""Where studies lie in the tests."""

import pytest

from transformer_jax.tools.sweeps.storage import open_storage


@pytest.fixture
def storage(tmp_path):
    return open_storage(str(tmp_path / "study.journal"))
