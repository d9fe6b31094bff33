"""Kept executables: the same results without tracing, and never of another program."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from transformer_jax.registry import plugins
from transformer_jax.runtime import kept_programs
from transformer_jax.runtime.kept_programs import Program, ProgramStore, digest_of_code

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of kept programs, which is empty."""
    monkeypatch.setenv("TRANSFORMER_JAX_PROGRAMS", "")
    monkeypatch.setattr(kept_programs, "is_extended", lambda: False)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", before)


class Process:
    """A program as a new process has it; ``traces`` counts how often its function is traced."""

    def __init__(self, settings="model", *, donated=(), function=None, has_store=True):
        self.traces = 0

        def scaled(factor, tree, rows):
            self.traces += 1
            return function(rows) if function else {"sum": tree["bias"][None] + factor * rows, "first": rows[0]}

        store = ProgramStore(settings, jax.devices()[0]) if has_store else None
        self.program = Program(scaled, store, donated=donated)

    def __call__(self, rows=ROWS, factor=2.0):
        tree = {"bias": jnp.ones(3, jnp.float32)}
        return [np.asarray(leaf) for leaf in self.program(tree, rows, static=lambda: factor, key=factor)]


def executables(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if file.stat().st_size > 20_000}


def assert_equal(found, expected):
    for leaf, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(leaf, other)
        assert leaf.dtype == other.dtype


@pytest.mark.parametrize("donated", [(), (1,)])
def test_the_next_process_traces_nothing(folder, donated):
    expected, first, second = Process(has_store=False)(), Process(donated=donated), Process(donated=donated)
    assert_equal(first(), expected)
    assert_equal(first(), expected)
    assert_equal(second(), expected)
    assert (first.traces, second.traces) == (1, 0)
    assert_equal(second(jnp.asarray(ROWS)), expected)


def test_a_donated_argument_is_gone(folder):
    Process(donated=(1,))()
    rows = jnp.asarray(ROWS) + 1
    Process(donated=(1,))(rows)
    assert rows.is_deleted()


def test_whatever_differs_is_another_program(folder, monkeypatch):
    Process()()

    def is_traced(process, *arguments):
        process(*arguments)
        return process.traces == 1

    assert not is_traced(Process())
    assert is_traced(Process(settings="another"))
    assert is_traced(Process(), ROWS[:1])
    assert is_traced(Process(), ROWS.astype(np.int32))
    assert is_traced(Process(), ROWS, 3.0)
    assert is_traced(Process(donated=(1,)))
    with jax.default_matmul_precision("float32"):
        assert is_traced(Process())
    for name in ("_package", "_environment"):
        with monkeypatch.context() as patch:
            patch.setattr(kept_programs, name, lambda: "another version")
            assert is_traced(Process())
    with monkeypatch.context() as patch:
        patch.setattr(kept_programs, "_processor", lambda device: "another processor")
        assert is_traced(Process())
    assert not is_traced(Process())


def test_after_a_change_that_leaves_the_program_only_tracing_is_repeated(folder, monkeypatch):
    Process()()
    before = executables(folder)
    monkeypatch.setattr(kept_programs, "_package", lambda: "another version")
    changed = Process()
    changed()
    assert changed.traces == 1
    assert executables(folder) == before


def test_a_damaged_file_is_written_again(folder):
    expected = Process()()
    for file in folder.iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert_equal(Process()(), expected)
    last = Process()
    assert_equal(last(), expected)
    assert last.traces == 0


def test_a_file_of_somebody_else_is_not_read(folder, monkeypatch):
    Process()()
    monkeypatch.setattr(kept_programs.os, "geteuid", lambda: 1 + max(file.stat().st_uid for file in folder.iterdir()))
    monkeypatch.setattr(kept_programs, "ROOT", -1)
    other = Process()
    other()
    assert other.traces == 1


def test_a_file_that_anybody_may_write_is_not_read(folder):
    Process()()
    for file in folder.iterdir():
        file.chmod(0o666)
    for traces in (1, 0):
        process = Process()
        process()
        assert process.traces == traces


def test_the_compilation_cache_has_no_copy(folder):
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    try:
        Process()()
        Process(has_store=False)()
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before)
        compilation_cache.reset_cache()
    names = [file.name for file in folder.parent.glob("jit_scaled*-cache")]
    assert [name.partition("-")[0] for name in names] == ["jit_scaled"]


def with_callback(rows):
    return jax.pure_callback(lambda each: np.asarray(each) * 2, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows)


def test_a_program_that_calls_python_is_not_kept(folder):
    for _ in range(2):
        process = Process(function=with_callback)
        np.testing.assert_array_equal(process()[0], ROWS * 2)
        assert process.traces > 0


def test_typed_keys_are_traced(folder):
    for _ in range(2):
        process = Process(function=lambda key: jax.random.normal(key, (3,)))
        np.testing.assert_array_equal(process(jax.random.key(1))[0], jax.random.normal(jax.random.key(1), (3,)))
        assert process.traces > 0


@pytest.mark.parametrize("name", ["jax_disable_jit", "jax_debug_nans"])
def test_none_are_kept_where_jax_checks_or_runs_each_operation(folder, name):
    store = ProgramStore("model", jax.devices()[0])
    assert store.folder == folder
    before = getattr(jax.config, name)
    jax.config.update(name, True)
    try:
        assert store.folder is None
    finally:
        jax.config.update(name, before)


def test_code_that_was_edited_after_the_start_has_no_digest(tmp_path):
    file = tmp_path / "part.py"
    file.write_text("ONE = 1\n")
    began = file.stat().st_mtime + 1
    before = digest_of_code(tmp_path, began)
    assert before == digest_of_code(tmp_path, began)
    assert digest_of_code(tmp_path, file.stat().st_mtime) == ""
    file.write_text("ONE = 2\n")
    assert digest_of_code(tmp_path, file.stat().st_mtime + 1) not in ("", before)
    assert 0 < kept_programs._began() <= time.time()


def test_parts_of_a_plugin_are_noticed(monkeypatch):
    monkeypatch.setattr(plugins, "_REGISTERED", {kind: {} for kind in plugins.KINDS})
    assert not plugins.is_extended()
    plugins.register("schedule", "of_a_plugin")(lambda settings, hyperparameters, d_model: None)
    assert plugins.is_extended()


def test_shapes_of_parameters_come_back(folder):
    shapes = {"layer": {"kernel": jax.ShapeDtypeStruct((2, 3), jnp.bfloat16), "none": {}}, "scale": jnp.zeros(())}
    for _ in range(2):
        found = ProgramStore("model", jax.devices()[0]).shapes(lambda: shapes)
        assert jax.tree.structure(found) == jax.tree.structure(shapes)
        assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(found)] == [
            (leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shapes)
        ]
    # Computed once.
    ProgramStore("model", jax.devices()[0]).shapes(lambda: pytest.fail("computed again"))
