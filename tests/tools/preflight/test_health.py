"""The checks of ``doctor`` find errors."""

import jax
import numpy as np
import pytest

from transformer_jax.commands.flags import parse
from transformer_jax.commands.registry import load_command
from transformer_jax.tools.preflight import health
from transformer_jax.training.sharding import sharded_shapes


def test_a_number_that_is_off_is_named_with_its_array():
    right = {"table": np.ones(3), "bias": np.ones(2)}
    assert "relative error" in health.require_equal(right, right)
    with pytest.raises(health.Unsound, match=r"5.0e-01 in bias"):
        health.require_equal({**right, "bias": np.array([1.0, 1.5])}, right)
    assert health.relative_error(np.array([np.nan]), np.ones(1)) == float("inf")


def test_sums_and_files_are_right_here(tmp_path):
    mesh = health.make_mesh(health.MeshConfig(fsdp=2))
    assert health.sum_over_devices(mesh) == "8 devices"
    assert str(tmp_path) in health.write_and_read(tmp_path / "not" / "there") and not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_right", [True, False])
def test_the_status_says_whether_something_is_wrong(is_right, monkeypatch, capsys):
    monkeypatch.setattr(health, "checks", lambda config, folder: iter([health.Check("sum", is_right, "why")]))
    doctor = load_command("doctor")
    assert doctor.run(parse(doctor.flags, [])) == (not is_right)
    assert ("ok" if is_right else "WRONG") in capsys.readouterr().out


def test_a_row_of_several_processes_names_those_that_are_wrong(monkeypatch):
    def together(*rows: health.Check, must_agree: bool = False) -> health.Check:
        monkeypatch.setattr(health, "from_all", lambda name, here: [row._asdict() for row in rows])
        return health.of_all(rows[0], must_agree=must_agree)

    right, other, wrong = (health.Check("sum", *rest) for rest in ((True, "8"), (True, "9"), (False, "7")))
    assert together(right, other) == right and together(wrong) == wrong
    assert together(right, wrong, wrong) == health.Check("sum", False, "process 1, 2: 7")
    assert together(right, other, must_agree=True) == health.Check("sum", False, "process 0: 8; process 1: 9")


@pytest.mark.parametrize("sizes", [{"tensor": 8}, {"fsdp": 8}, {"context": 4, "tensor": 2}])
def test_the_model_fits_any_mesh(sizes):
    mesh = health.make_mesh(health.MeshConfig(**sizes))
    config = health.fitted(health.small_config(), mesh)
    shapes = health.objective_of(config, mesh).init_params
    for leaf in jax.tree.leaves(sharded_shapes(jax.eval_shape(shapes, jax.random.key(0)), mesh)):
        leaf.sharding.shard_shape(leaf.shape)
    assert health.fitted(config, mesh) == config
