"""A process does not trace what an earlier one traced; whatever may change a program is part of its name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.runtime import kept_traces
from transformer_jax.runtime.kept_traces import jit_with_kept_traces


@pytest.fixture
def folder(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "traces"
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def trace():
    """Traces and runs ``scaled`` by a new jit; returns the result, and how often it was traced."""

    def call(identity="a model", rows=2, dtype=np.float32, factor=2.0, name="scaled"):
        traced = []

        def scaled(params, state, *, factor):
            traced.append(factor)
            counter, (values, none) = state
            return counter + 1, ({"sum": (values * params["scale"]).sum() * factor}, values, none)

        scaled.__name__ = name
        jitted = jit_with_kept_traces(identity)(scaled, static_argnames="factor", donate_argnums=1)
        state = jnp.int32(1), (jnp.arange(rows, dtype=dtype), None)
        found = [
            jitted({"scale": np.float32(3)}, each, factor=factor) for each in (state, jax.tree.map(jnp.copy, state))
        ]
        return found[-1], len(traced)

    return call


def test_a_second_process_does_not_trace(folder, trace):
    (counter, (first, values, none)), traced = trace()
    assert (int(counter), float(first["sum"]), values.tolist(), none, traced) == (2, 6.0, [0.0, 1.0], None, 1)
    again, traced = trace()
    assert jax.tree.structure(again) == jax.tree.structure((counter, (first, values, none))) and traced == 0
    for old, new in zip(jax.tree.leaves((counter, (first, values))), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(old, new)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [{"identity": "another"}, {"rows": 3}, {"dtype": np.int32}, {"factor": 3.0}, {"name": "other"}],
    ids=lambda other: next(iter(other)),
)
def test_a_difference_is_traced(folder, trace, other):
    trace()
    assert trace(**other)[1] == 1


@pytest.mark.parametrize("flag", ["jax_default_matmul_precision", "sources"])
def test_other_sources_and_settings_are_traced(folder, trace, flag, monkeypatch, tmp_path):
    trace()
    kept_traces._environment.cache_clear()
    if flag == "sources":
        (tmp_path / "package").mkdir()
        (tmp_path / "package" / "layer.py").write_text("changed")
        monkeypatch.setattr(kept_traces, "PACKAGE", tmp_path / "package")
        assert trace()[1] == 1
    else:
        with jax.default_matmul_precision("highest"):
            assert trace()[1] == 1
    kept_traces._environment.cache_clear()


def test_nothing_is_kept_without_a_compilation_cache(folder, trace):
    jax.config.update("jax_compilation_cache_dir", None)
    assert jit_with_kept_traces("a model") is jax.jit


def test_a_folder_that_cannot_be_written_costs_a_trace(folder, trace):
    folder.write_text("a file")
    assert [trace()[1], trace()[1]] == [1, 1]
