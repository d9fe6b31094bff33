"""Tables and decisions about checkpoints, from literal trees and folders."""

import json
from pathlib import Path

import numpy as np

from transformer_jax.config import Metric
from transformer_jax.run_directory.layout import RunDirectory
from transformer_jax.run_directory.stored_checkpoints import stored_checkpoints
from transformer_jax.tools.checkpoint_tools.averages import (
    bytes_text,
    checkpoint_table,
    marks_of,
    parameter_count,
    parameter_table,
)

BLEU = Metric("bleu", "maximize")


def write_checkpoint(folder: Path, metrics: str | None) -> None:
    (folder / "rest").mkdir(parents=True)
    (folder / "rest" / "array").write_bytes(b"12345")
    if metrics is not None:
        (folder / "metrics").mkdir()
        (folder / "metrics" / "metrics").write_text(metrics)


def test_a_tree_of_modules_with_totals():
    assert list(map(bytes_text, (1023, 3 * 2**20, 3 * 2**30))) == ["1023 B", "3.0 MiB", "3.0 GiB"]
    tree = {
        "layers_10": {"kernel": np.zeros((2, 3), np.float32)},
        "layers_2": {"kernel": np.zeros((4,), np.float32), "gain": np.zeros((), np.float16)},
    }
    assert parameter_count(tree) == "11 numbers in 3 arrays, 42 B"
    lines = parameter_table(tree, 0).split("\n")
    assert [line.split()[0] for line in lines] == ["parameters", "layers_2", "layers_10", "total"]
    assert parameter_table(tree, 1).split("\n") == [
        "parameters  shape   type     numbers  bytes",
        "layers_2                           5   18 B",
        "  gain      scalar  float16        1    2 B",
        "  kernel    4       float32        4   16 B",
        "layers_10                          6   24 B",
        "  kernel    2 x 3   float32        6   24 B",
        "total                             11   42 B",
    ]


def test_a_folder_is_listed_with_its_damage(tmp_path):
    folder = tmp_path / "checkpoints"
    write_checkpoint(folder / "10", '{"bleu": 2.5}')
    write_checkpoint(folder / "9", '{"bleu": 7.5}')
    write_checkpoint(folder / "11", '{"bleu"')
    write_checkpoint(folder / "12.orbax-checkpoint-tmp-3", None)
    write_checkpoint(tmp_path / "damaged-8", None)
    (folder / "9" / "_CHECKPOINT_METADATA").write_text(json.dumps({"commit_timestamp_nsecs": 5 * 10**9}))
    stored = stored_checkpoints(folder)
    scores = {checkpoint.step: (checkpoint.score, checkpoint.is_sound) for checkpoint in stored}
    assert scores == {9: (7.5, True), 10: (2.5, True), 11: (None, False)}
    assert stored[0].written == 5
    assert marks_of(stored, BLEU) == {9: "best", 10: "last", 11: "damaged: its score cannot be read"}
    lines = checkpoint_table(RunDirectory(tmp_path)).split("\n")
    assert [line.split()[:2] for line in lines[1:4]] == [["9", "7.50"], ["10", "2.50"], ["11", "12"]]
    assert lines[-1] == f"damaged, set aside: {tmp_path / 'damaged-8'}, 5 B"
