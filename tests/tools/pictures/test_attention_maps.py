import numpy as np
import pytest
from matplotlib.colors import to_rgba

from transformer_jax.tools.pictures.attention_maps import draw_attention, visible_piece
from transformer_jax.tools.pictures.canvas import MARK


def uniform(heads, rows, columns):
    return np.full((heads, rows, columns), 1 / columns, np.float32)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_grid_of_layers_and_heads(tmp_path, figures):
    source, target = ["▁a", "▁girl", "</s>"], ["▁ein", "▁Mäd", "chen", "</s>"]
    weights = {"layer 1": uniform(2, 4, 3), "layer 2": uniform(2, 4, 3)}
    weights["layer 2"][1, 3] = [0, 0, 1]
    path = tmp_path / "new" / "attention.png"
    assert draw_attention(weights, target, source, path, title="costs $5 or $6") == path and path.is_file()
    *panels, scale = figures[0].axes
    assert [panel.get_title() for panel in panels] == ["head 1", "head 2", "mean of heads", "", "", ""]
    assert [labels(panel.yaxis) for panel in panels] == [["␣ein", "␣Mäd", "chen", "</s>"], [], []] * 2
    assert [labels(panel.xaxis) for panel in panels] == [[]] * 3 + [["␣a", "␣girl", "</s>"]] * 3
    assert {panel.images[0].get_clim() for panel in (*panels, scale)} == {(0.0, 1.0)}
    np.testing.assert_allclose(panels[5].images[0].get_array()[3], [1 / 6, 1 / 6, 2 / 3], rtol=1e-6)
    *layers, written, read, note, title = (text.get_text() for text in figures[0].texts)
    assert (layers, title) == (["layer 1", "layer 2"], "costs $5 or $6")
    assert (written, read) == ("written ↓", "read →")
    assert note.startswith("Framed: layer 2, head 2, the sharpest of 4")
    framed = [number for number, panel in enumerate(panels) if panel.spines["left"].get_edgecolor() == to_rgba(MARK)]
    assert framed == [4]
    draw_attention({name: heads[:1] for name, heads in weights.items()}, target, source, path)
    assert not [text for text in figures[1].texts if "Framed" in text.get_text()], "no layer has several heads"


def test_negative_weights_have_another_color_and_a_scale_around_zero(tmp_path, figures):
    weights = {"layer 1": np.array([[[1.5, -0.5]], [[0.5, 0.5]]])}
    draw_attention(weights, ["a"], ["b", "c"], tmp_path / "attention.png")
    *panels, scale = figures[0].axes
    assert {panel.images[0].get_clim() for panel in (*panels, scale)} == {(-1.5, 1.5)}
    assert labels(scale.yaxis) == ["-1.5", "0", "1.5"]
    image = panels[0].images[0]
    one, other = image.cmap(image.norm([0.5, -0.5]))
    assert one[2] > one[0] and other[0] > other[2], "blue and orange"


@pytest.mark.filterwarnings("ignore:.*no installed font has")
def test_unusual_pieces_are_drawn(tmp_path, figures):
    pieces = ["$x$", "漢字", "\t", "\N{ZERO WIDTH SPACE}", "▁"]
    draw_attention({"": np.eye(5, dtype=np.float32)[None]}, pieces, pieces, tmp_path / "attention.png")
    (panel, _) = figures[0].axes
    assert labels(panel.xaxis) == ["$x$", "漢字", "\\t", "\\u200b", "␣"]
    assert visible_piece("▁größ") == "␣größ"


def test_a_long_sentence_has_its_sharpest_head_and_the_mean(tmp_path, figures):
    pieces = [f"{number}" for number in range(30)]
    looks_at_the_end = np.zeros((30, 30), np.float32)
    looks_at_the_end[:, -1] = 1
    aligned = 0.9 * np.eye(30, dtype=np.float32) + 0.1 / 30
    weights = {"layer 1": uniform(2, 30, 30), "layer 2": np.stack([looks_at_the_end, aligned])}
    draw_attention(weights, pieces, ["x", *pieces[1:]], tmp_path / "attention.png", hint="See --layer.")
    (*panels, _) = figures[0].axes
    assert [panel.get_title() for panel in panels] == ["head 2", "mean of heads"]
    np.testing.assert_allclose(panels[1].images[0].get_array(), (looks_at_the_end + aligned) / 2)
    texts = [text.get_text().replace("\n", " ") for text in figures[0].texts]
    assert texts[:3] == ["layer 2", "written ↓", "read →"]
    assert texts[3].startswith("Framed: layer 2, head 2, the sharpest of 4: ") and texts[3].endswith(
        "0.90 on average. See --layer."
    )
