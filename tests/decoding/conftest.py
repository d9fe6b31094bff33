import importlib.util
import pathlib
import sys

import pytest


@pytest.fixture(scope="session")
def lookup_model():
    """The module beside this file; the tests are no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("lookup_model", pathlib.Path(__file__).with_name("lookup_model.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["lookup_model"] = module
    spec.loader.exec_module(module)
    return module
