"""The API reference: every public name has an entry, a docstring, types, and an example that
compiles."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import transformer_jax

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^\.\. auto\w+:: transformer_jax\.(\S+)$", PAGE, re.MULTILINE)
EXAMPLES = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_every_public_name_is_completed_has_an_entry_and_an_example_that_compiles():
    importlib.import_module("transformer_jax.config")
    assert dir(transformer_jax) == sorted([*transformer_jax.__all__, "__version__"])
    used = {node.attr for node in ast.walk(ast.parse(EXAMPLES)) if isinstance(node, ast.Attribute)}
    assert set(transformer_jax.__all__) <= used & set(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_have_docstrings_and_types(entry):
    module, _, name = entry.rpartition(".")
    found = getattr(importlib.import_module(f"transformer_jax.{module}".rstrip(".")), name)
    assert inspect.getdoc(found)
    methods = [each for key, each in vars(found).items() if key[0] != "_"] if inspect.isclass(found) else [found]
    functions = [getattr(each, "fget", None) or getattr(each, "__func__", each) for each in methods]
    for function in filter(inspect.isfunction, functions):
        signature = inspect.signature(function)
        named = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        untyped = [each.name for each in named if each.annotation is each.empty]
        assert untyped == [] and signature.return_annotation is not signature.empty, f"{entry}: {function.__name__}"
