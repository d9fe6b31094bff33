"""The log of a resumed run: what it was when its checkpoint was saved, or a sentence."""

import re
from contextlib import closing
from dataclasses import asdict, replace

import numpy as np
import pytest

from transformer_jax.config import DataError
from transformer_jax.runs.metrics_log import LogContents, MetricsLog
from transformer_jax.runs.run import Counters
from transformer_jax.training.losses import LossSums
from transformer_jax.training.step import StepMetrics


def written(path, *steps: int) -> LogContents:
    with closing(MetricsLog(path, 0)) as log:
        for step in steps:
            log.write(step, {"train/loss": 1.25 * step, "validation/bleu": float("nan")})
        return log.contents


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("", "", ""),
        ("2.5", "2.7", "records were changed since they were written"),
        ('"step": 2', '"step": 9', "records were lost: 2 left of 3"),
        ('"step": 3', '"step": 2', "records were changed since they were written"),
    ],
)
def test_a_log_that_is_cut_to_its_checkpoint_is_as_it_was_or_a_change_is_told(tmp_path, old, new, change):
    path = tmp_path / "log"
    before, _ = written(path, 1, 2, 3), written(tmp_path / "whole", 1, 2, 3, 4)
    # Records of earlier versions have no CRC-32.
    text = re.sub(', "crc32": "[0-9a-f]{8}"', "", (tmp_path / "whole").read_text())
    path.write_text(text.replace(old, new))
    with closing(MetricsLog(path, 3)) as log:
        assert log.contents.changes_since(before) == ([f"metrics.jsonl: {change}"] if change else [])
        assert log.contents.changes_since(LogContents(2)) == [], "an earlier version wrote no digest"


def test_a_changed_digit_is_refused_when_a_run_resumes(tmp_path):
    written(tmp_path / "log", 1, 2, 3)
    text = (tmp_path / "log").read_text()
    (tmp_path / "log").write_text(text.replace("2.5", "2.7"))
    with pytest.raises(DataError, match=r"log, line 2: .*its crc32 does not match.*; remove the line to resume"):
        MetricsLog(tmp_path / "log", 3)


def metrics(loss: float, *, finite: bool) -> StepMetrics:
    sums = LossSums(*(np.float32(value) for value in (loss, loss, 2.0, 4.0)))
    sums = sums._replace(extras={"z_loss": np.float32(loss / 2)})
    return StepMetrics(sums, np.float32(1.0), np.asarray(finite))


def test_a_skipped_update_is_counted_and_adds_nothing():
    counters = Counters()
    counters.add(metrics(8.0, finite=True))
    assert "train/skipped_updates" not in replace(counters).take_means()
    counters.add(metrics(float("nan"), finite=False))
    assert (counters.skipped, counters.total_tokens) == (1, 4.0)
    restored = Counters(**asdict(counters))
    means = restored.take_means()
    assert (means["train/loss"], means["train/z_loss"], means["train/skipped_updates"]) == (2.0, 1.0, 1.0)
    assert restored.take_means() == {"train/skipped_updates": 1.0}, "nothing was added since"
