import json

import pytest
from matplotlib.image import imread

from transformer_jax.config import DataError
from transformer_jax.tools.pictures.canvas import blank_figure, write_png
from transformer_jax.tools.pictures.curves import draw_curves, read_series


def write_metrics(file, records, end="\n"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(record) for record in records) + end)
    return file


def test_series_of_a_resumed_run(tmp_path):
    records = [{"step": 1, "loss": 9.0}, {"step": 2, "loss": 8, "bleu": 3}, {"step": 2, "loss": 7.0}, {"step": 3}]
    file = write_metrics(tmp_path / "metrics.jsonl", records, end='\n{"step": 3, "lo')
    assert read_series(file, ["loss", "bleu"], "step") == {"loss": ([1, 2], [9.0, 7.0]), "bleu": ([2], [3.0])}


def test_a_picture_of_two_runs(tmp_path):
    records = [{"step": 1, "loss": 2.0, "bleu": 1.0}]
    runs = [write_metrics(tmp_path / name / "metrics.jsonl", records) for name in "ab"]
    one = imread(draw_curves(runs[0], ["loss"], tmp_path / "one.png"))
    two = imread(draw_curves(runs, ["loss", "bleu"], tmp_path / "two.png", title="a and b"))
    assert abs(two.shape[1] - 2 * one.shape[1]) <= 2
    assert two[:, :, 0].min() < 0.3


def test_a_run_without_a_value_yet_has_no_line_but_a_name(tmp_path):
    began = write_metrics(tmp_path / "a" / "metrics.jsonl", [{"step": 1, "loss": 2.0}])
    judged = write_metrics(tmp_path / "b" / "metrics.jsonl", [{"step": 1, "loss": 2.0, "bleu": 1.0}])
    both = imread(draw_curves([began, judged], ["loss", "bleu"], tmp_path / "both.png", names=["a", "$b$_{"]))
    assert both[:, :, 0].min() < 0.3
    with pytest.raises(DataError, match="'chrf'; it has step, loss"):
        draw_curves([began, judged], ["loss", "chrf"], tmp_path / "none.png")


def test_panels_and_names_go_into_further_lines(tmp_path):
    records = [{"step": step, "loss": 1.0, "bleu": 2.0, "chrf": 3.0} for step in (1, 2)]
    runs = [write_metrics(tmp_path / f"{name}" / "metrics.jsonl", records) for name in range(30)]
    keys = ["loss", "bleu", "chrf"]
    square = imread(draw_curves(runs, keys, tmp_path / "square.png", columns=2))
    row = imread(draw_curves(runs, keys, tmp_path / "row.png"))
    assert abs(row.shape[1] - 1.5 * square.shape[1]) <= 2
    assert square.shape[0] > 1.5 * row.shape[0]
    long_names = [f"run {number} of many with a name that is long" for number in range(30)]
    assert imread(draw_curves(runs, keys, tmp_path / "long.png", names=long_names)).shape[0] > row.shape[0]


def test_problems_are_named(tmp_path):
    good = write_metrics(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 2.0}])
    broken = write_metrics(tmp_path / "broken.jsonl", [{"step": 1}], end='\nnonsense\n{"step": 2}\n')
    with pytest.raises(DataError, match="'bleu'; it has step, loss"):
        draw_curves(good, ["bleu"], tmp_path / "curves.png")
    with pytest.raises(DataError, match=r"broken\.jsonl, line 2"):
        draw_curves(broken, ["loss"], tmp_path / "curves.png")
    with pytest.raises(DataError, match="no such file"):
        draw_curves(tmp_path / "missing.jsonl", ["loss"], tmp_path / "curves.png")


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_picture_replaces_a_link_and_never_follows_it(tmp_path, ending):
    precious, link = tmp_path / "precious", tmp_path / f"attention.{ending}"
    precious.write_text("text")
    link.symlink_to(precious)
    write_png(blank_figure(1, 1), link)
    assert precious.read_text() == "text"
    assert not link.is_symlink()
    assert link.stat().st_size > 100
