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
    assert read_series(file, ["loss", "bleu"]) == {"loss": ([1, 2], [9.0, 7.0]), "bleu": ([2], [3.0])}


def test_a_run_without_a_value_yet_has_no_line_but_a_name(tmp_path):
    began = write_metrics(tmp_path / "a" / "metrics.jsonl", [{"step": 1, "loss": 2.0}])
    scored = write_metrics(tmp_path / "b" / "metrics.jsonl", [{"step": 1, "loss": 2.0, "bleu": 1.0}])
    both = imread(draw_curves([began, scored], ["loss", "bleu"], tmp_path / "both.png", names=["a", "$b$_{"]))
    assert both[:, :, 0].min() < 0.3
    broken = write_metrics(tmp_path / "broken.jsonl", [{"step": 1}], end='\nnonsense\n{"step": 2}\n')
    cases = (began, "chrf", "'chrf'; it has step, loss"), (broken, "loss", r"no record has 'loss'; it has step")
    for file, key, problem in (*cases, (tmp_path / "missing.jsonl", "loss", "no such file")):
        with pytest.raises(DataError, match=problem):
            draw_curves([file], [key], tmp_path / "none.png")


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_picture_replaces_a_link_and_never_follows_it(tmp_path, ending):
    precious, link = tmp_path / "precious", tmp_path / f"attention.{ending}"
    precious.write_text("text")
    link.symlink_to(precious)
    write_png(blank_figure(1, 1), link)
    assert precious.read_text() == "text"
    assert not link.is_symlink() and link.stat().st_size > 100
