"""An archive that several files of tests look at."""

import pytest
from tools.interop.small_models import TEXTS, opened, small_model

from transformer_jax.tools.interop import archive as archive_format


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    """Of ``small_model()``; a test that changes it takes a copy."""
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install transformer_jax[export]")
    folder = tmp_path_factory.mktemp("archive")
    archive_format.export(opened(small_model()), folder, TEXTS)
    return folder
