"""Few frames lie between the trainer's loop and the cross entropy, so that a reader of a traceback sees all of them."""

import re
import traceback
from contextlib import closing
from pathlib import Path

import pytest
from run_settings import tiny_config
from run_steps import task_and_update

import transformer_jax
from transformer_jax.sequence_types import batch_shape
from transformer_jax.training import projected_loss
from transformer_jax.training.update import CompiledStep

PACKAGE = str(Path(transformer_jax.__file__).parent)
MAX_FRAMES = 10


class ReachedError(Exception):
    """The cross entropy was called."""


def test_few_frames_of_our_code_lie_between_the_loop_and_the_cross_entropy(cache, tmp_path, monkeypatch):
    def reached(*_: object, **__: object) -> None:
        raise ReachedError

    monkeypatch.setattr(projected_loss, "label_smoothed_cross_entropy", reached)
    _, update = task_and_update(tiny_config(cache), tmp_path)
    with closing(CompiledStep(update, [batch_shape(8, 8, 8)])) as compiled, pytest.raises(ReachedError) as raised:
        compiled.for_batch(batch_shape(8, 8, 8))
    frames = [each for each in traceback.extract_tb(raised.value.__traceback__) if each.filename.startswith(PACKAGE)]
    names = [f"{Path(each.filename).stem}.{each.name}" for each in frames]
    # The loop itself is the first frame.
    assert 1 + len(names) <= MAX_FRAMES, names
    page = (Path(transformer_jax.__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = page.split("Ten frames of this package")[1].partition("holds the limit")[0]
    assert re.findall(r"`(\w+)`", named)[1:] == [name.partition(".")[2] for name in names]
