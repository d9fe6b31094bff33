"""The training step: compiled ahead of the updates, and called like any function of JAX."""

import traceback
from contextlib import closing
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_settings import tiny_config
from run_steps import read_parameters, train

from transformer_jax.runs.compilation import CompilationAhead
from transformer_jax.runs.goodput import Clock
from transformer_jax.tasks import training_loss
from transformer_jax.training.losses import LossSums


def update_of(traced: list[int]) -> SimpleNamespace:
    def step(state: jax.Array, batch: jax.Array) -> jax.Array:
        traced.append(batch.shape[1])
        return state + batch.sum()

    jitted, state = jax.jit(step), jnp.zeros(())
    return SimpleNamespace(jitted=jitted, lower=lambda batch: jitted.lower(state, batch))


def test_each_shape_is_traced_once_the_first_at_once_and_others_in_their_order(capfd):
    traced: list[int] = []
    update = update_of(traced)
    shapes = [jax.ShapeDtypeStruct((1, width), jnp.float32) for width in (2, 3, 5, 6)]
    clock, state = Clock(), jnp.zeros(())
    with closing(CompilationAhead(update, shapes, clock)) as ahead:
        assert traced == [2]
        for width in (2, 5, 3, 5, 2, 7):
            batch = jnp.ones((1, width), jnp.float32)
            ahead.wait_for(batch)
            before = len(traced)
            state = update.jitted(state, batch)
            assert len(traced) == before, "the call finds the program"
            ahead.compile_next()
    # After the first batch 3 is next; 5 is needed before its turn, 7 was not planned.
    assert traced == [2, 3, 5, 6, 7]
    assert (
        capfd.readouterr().err == "compiling once more, for a batch with rows of shapes (1, 7) that was not planned\n"
    )
    assert float(state) == 2 + 5 + 3 + 5 + 2 + 7
    assert clock.seconds["compile"] > 0


class StopHereError(Exception):
    """Raised while the step is traced."""


def test_the_trainer_is_on_the_stack_of_an_error_in_the_step(cache, tmp_path, monkeypatch):
    def failing(*_: object, **__: object) -> None:
        raise StopHereError

    monkeypatch.setattr("transformer_jax.tasks.training_loss.projected_cross_entropy", failing)
    with pytest.raises(StopHereError) as raised:
        train(tiny_config(cache), tmp_path)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names.index("run_training") < names.index("training_loss")


@pytest.mark.slow
def test_an_error_of_the_compiler_is_raised_at_the_call_of_the_step(cache, tmp_path, monkeypatch):
    original = training_loss.projected_cross_entropy

    def not_compiled(*arguments: object, **options: object) -> LossSums:
        sums = original(*arguments, **options)
        made = jax.ffi.ffi_call("no_such_function", jax.ShapeDtypeStruct((), jnp.float32))()
        return sums._replace(loss=sums.loss + jax.lax.stop_gradient(made))

    monkeypatch.setattr(training_loss, "projected_cross_entropy", not_compiled)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_function") as raised:
        train(tiny_config(cache, evaluate_every=0), tmp_path)
    (line,) = [each.line for each in traceback.extract_tb(raised.value.__traceback__) if each.name == "run_training"]
    assert "update.jitted(" in line


@pytest.mark.slow
def test_with_debug_nans_the_error_is_raised_where_the_number_is_made(cache, tmp_path, monkeypatch):
    original = training_loss.projected_cross_entropy

    def poisoned(*arguments: object, **options: object) -> LossSums:
        sums = original(*arguments, **options)
        return sums._replace(loss=jnp.log(-jnp.abs(sums.loss)))

    monkeypatch.setattr(training_loss, "projected_cross_entropy", poisoned)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan") as raised:
        train(tiny_config(cache, evaluate_every=0), tmp_path)
    frames = traceback.extract_tb(raised.value.__traceback__)
    names = [frame.name for frame in frames]
    assert names.index("run_training") < names.index("poisoned")
    assert any("jnp.log(-jnp.abs(sums.loss))" in frame.line for frame in frames if frame.name == "poisoned")


@pytest.mark.slow
def test_a_run_without_jit_makes_the_same_updates(cache, tmp_path):
    config = tiny_config(cache, num_updates=1, evaluate_every=0, checkpoint_every=1)
    train(config, tmp_path / "jit")
    with jax.disable_jit():
        train(config, tmp_path / "eager")
    jit, eager = (read_parameters(tmp_path / name, "last") for name in ("jit", "eager"))
    for name, leaf in jit.items():
        np.testing.assert_allclose(eager[name], leaf, atol=1e-5, err_msg=name)
