"""What a run tells of its updates: a trace of some, and a shape that has to be compiled once
more."""

import gzip
import json
import re
from contextlib import closing
from types import SimpleNamespace

import pytest
from run_settings import tiny_config
from run_steps import task_and_update, train

from transformer_jax.config import ConfigError
from transformer_jax.runs.hooks import Profile, ProfiledSteps
from transformer_jax.runs.run import Counters, Position
from transformer_jax.tasks.translation.translation_task import TranslationData


def test_a_trace_has_the_steps_that_a_flag_names(tmp_path):
    run = SimpleNamespace(directory=SimpleNamespace(profile=tmp_path))
    with closing(Profile(ProfiledSteps.parse("2:3"))) as profile:
        at = [Position(None, number, Counters()) for number in range(6)]
        assert [each.number for each in at if profile.needs_state(None, each, each.number)] == [1, 3]
        # The run ends at update 2.
        at[2].stop()
        assert profile.needs_state(None, at[2], 2)
        for position in at[:3]:
            profile(run, position)
            assert bool(list(tmp_path.rglob("*.xplane.pb"))) == bool(position.ends)
    for text in ("", "3", "4:3", "0:2", "2-3"):
        with pytest.raises(ConfigError, match=f"--profile_steps: '{text}' is not A:B"):
            ProfiledSteps.parse(text)


@pytest.mark.slow
def test_updates_are_traced_and_a_shape_that_was_not_planned_is_told(cache, tmp_path, monkeypatch, capfd):
    planned = TranslationData.batch_shapes
    monkeypatch.setattr(TranslationData, "batch_shapes", lambda self, first: [])
    config = tiny_config(cache, num_updates=4, evaluate_every=0)
    (shape,) = planned(task_and_update(config, tmp_path)[0].training_data(), 0)
    with closing(Profile(ProfiledSteps.parse("2:3"))) as profile:
        train(config, tmp_path, callbacks=[profile])
    (told,) = re.findall(
        r"compiling once more, for a batch with rows of shapes (\(.*\)) that was not planned",
        capfd.readouterr().err,
    )
    assert str(shape.target.ids.shape) in told
    assert list((tmp_path / "profile").rglob("*.xplane.pb")), "TensorBoard reads these"
    (perfetto,) = (tmp_path / "profile").rglob("perfetto_trace.json.gz")
    assert json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]
