import json
import re

import numpy as np

from transformer_jax.tools.pictures.word_map import draw_word_map, word_map_page

WORDS = ["$x$", "</script><b>", "Käse", 'a"b']
POINTS = np.array([[0, 0], [1, 2], [3, 1], [3, 1]], float)


def test_names_are_left_out_only_where_they_would_cover_one_before(figures, tmp_path):
    words = [f"word{number}" for number in range(30)]
    far = np.array([[x, y] for x in range(5) for y in range(6)], float)
    for points in (far, np.concatenate([[[0, 0], [9, 9], [9, 0]], far[3:] * 1e-6])):
        draw_word_map(words, points, tmp_path / "map.png")
    spread, crowded = ([text.get_text() for text in figure.axes[0].texts] for figure in figures)
    assert (spread, crowded[:3]) == (words, words[:3])
    assert 3 < len(crowded) <= 6  # of those in one place there is room for one on each side


def test_the_page_holds_every_word_as_data_and_nothing_from_elsewhere():
    page = word_map_page(WORDS, POINTS, [[word] for word in WORDS], 'map <i> & "')
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data) == {"words": WORDS, "near": [[word] for word in WORDS], "points": POINTS.tolist()}
    assert page.count("</script>") == 2
    assert "<title>map &lt;i&gt; &amp; &quot;</title>" in page
    assert not re.search(r"https?:|//[a-z]|src=|href=|innerHTML|@import|url\(", page)
