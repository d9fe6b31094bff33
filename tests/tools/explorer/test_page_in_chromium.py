"""The page in a real browser, with the network cut, its console watched, and every request
counted."""

from dataclasses import replace
from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest
from headless_chromium import browser_program
from tools.explorer.made_readings import made_reading

from transformer_jax.tools.explorer.head_statistics import HeadStatistics
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readings import curve_points
from transformer_jax.tools.explorer.searches import Forced, Next, Node, SearchTree

pytestmark = [
    pytest.mark.usefixtures("nothing_logged_and_nothing_fetched"),
    pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)"),
]

HOSTILE = ["\u2581<script>throw", "1</script>", "<!--", '"&amp;', "</s>"]
SOURCE = ["\u2581A", "\u2581man", "\u2581sleeps", ".", "</s>"]
TARGET = ["\u2581Ein", "\u2581Mann", "\u2581schl\u00e4ft", ".", "</s>"]
# Two tokens and an end; with the penalty the longer hypothesis wins.
FIRST = [Next(5, "\u2581Ein", -0.1), Next(6, "\u2581<i>", -3.0)]
NODES = [
    Node(-1, 0, 5, "\u2581Ein", -0.1, 0, "kept", following=[Next(7, "\u2581Mann", -1.2), Next(2, "</s>", -0.9)]),
    Node(-1, 0, 6, "\u2581<i>", -3.0, 1, "dropped"),
    Node(0, 1, 2, "</s>", -1.0, 0, "finished", -1.0 / 1.16, 1.16),
    Node(0, 1, 7, "\u2581Mann", -1.3, 1, "kept"),
    Node(3, 2, 2, "</s>", -1.01, 0, "finished", -1.01 / 1.33, 1.33),
]
TREE = SearchTree(2, 1.0, FIRST, NODES, [Forced((6,), "<i> Mann", -2.5, -3.3)])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    page = Page("made <b>up</b>", [RunName("first", "update 1", {"encoder": [1, 3]}), RunName("rnn", "update 2")])
    page.add_reading(made_reading(SOURCE, TARGET), TREE, text=0, run=0)
    page.add_statistics([HeadStatistics("cross", {"entropy": np.array([[0.5, 1.5]])}, "ten sentences")], run=0)
    page.add_statistics([HeadStatistics("cross", {"alignment": np.array([[0.4, 0.6]])}, "gold")], run=0)
    recurrent = made_reading(SOURCE, TARGET[:3], layers=1, heads=1, kinds=["cross"])
    page.add_reading(replace(recurrent, tree=[(0, "S", 1), (1, "sleeps", -1)]), text=0, run=1)
    page.add_reading(made_reading(HOSTILE, HOSTILE), text=1, run=0)
    page.add_reading(made_reading(HOSTILE, HOSTILE, layers=1, heads=1, kinds=["cross"]), text=1, run=1)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    return path.as_uri()


def state(browser, *names):
    return [browser.evaluate(f"state.{name}") for name in names]


def colors(browser):
    """The number of colors of the first canvas."""
    data = "panels[0].context.getImageData(0, 0, panels[0].canvas.width, panels[0].canvas.height).data.buffer"
    return browser.evaluate(f"new Set(new Uint32Array({data})).size")


def matrix(browser):
    """The values of the first panel."""
    browser.wait_for("currentMatrix(panels[0])")
    return browser.evaluate("Array.from(currentMatrix(panels[0]).values)")


def inspected(browser):
    return browser.evaluate("byId('inspector').textContent")


@pytest.mark.parametrize("view", ["matrix", "lines", "grid", "search", "statistics"])
def test_every_view_draws(browser, address, view):
    dark = view in ("lines", "search")
    browser.open(f"{address}#view={view}&kind=encoder&layer=2&head=3", dark=dark)
    assert state(browser, "view", "kind", "layer", "head") == [view, "encoder", 2, 3]
    browser.wait_for("thumbnails.size >= 8 || state.view !== 'grid'")
    assert colors(browser) > 20
    assert browser.evaluate("isDark()") is dark
    layers = browser.evaluate(
        "Array.from(document.querySelectorAll('#map .layer h2'), (each) => each.textContent.trim())"
    )
    assert layers[:2] == ["layer 1", "layer 3"], "the encoder has a recurrent layer between"


def test_keys_move_and_the_address_follows(browser, address):
    browser.open(f"{address}#layer=1&head=1")
    for key in ("e", "ArrowDown", "ArrowRight", "ArrowRight", "b", "r", "k"):
        browser.press(key)
    hash_ = browser.evaluate("location.hash")
    assert {"kind=encoder", "head=3", "view=lines"} <= set(hash_.removeprefix("#").split("&"))
    for _ in range(2):
        assert state(browser, "kind", "layer", "head", "view", "measure") == ["encoder", 2, 3, "lines", "rollout"]
        browser.open(address + hash_)


def test_values_on_the_page_are_those_of_the_model(browser, address):
    browser.open(f"{address}#kind=cross&layer=2&head=3")
    reading = made_reading(SOURCE, TARGET)
    cross = reading.attentions[2]
    for measure, expected in (
        ("w", cross.weights[1, 2]),
        ("n", cross.weights[1, 2] * cross.value_norms[1, 2]),
        ("r", cross.rollout[1]),
        ("x", reading.gradients["cross"]),
    ):
        browser.press(measure)
        assert matrix(browser) == pytest.approx(expected.ravel().tolist(), abs=0.03 if measure == "x" else 0.012)
    browser.press("0")
    browser.press("n")
    added = cross.weights[1] * cross.value_norms[1][:, None]
    cosines = np.zeros((4, 4, len(SOURCE)))
    cosines[np.tril_indices(4, -1)] = cross.value_cosines[1]
    cosines += np.swapaxes(cosines, 0, 1) + np.eye(4)[:, :, None]
    expected = np.sqrt(np.einsum("HQM,GQM,HGM->QM", added, added, cosines))
    assert matrix(browser) == pytest.approx(expected.ravel().tolist(), abs=0.02)


def test_a_slider_over_checkpoints(browser, address, tmp_path):
    names = [RunName("run", f"update {update}") for update in (30, 10, 20, 30)]
    page = Page("run", names, {1: 10, 2: 20, 3: 30})
    readings = [made_reading(SOURCE, TARGET, power=power) for power in (3, 1, 2, 3)]
    for run, reading in enumerate(readings):
        page.add_reading(reading, text=0, run=run)
    page.add_curves("cross", "entropy", [curve_points(reading)["cross"]["entropy"] for reading in readings[1:]], text=0)
    path = tmp_path / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    browser.requests.clear()
    browser.open(f"{path.as_uri()}#kind=cross&layer=2&head=3")
    for expected in (3, 2, 1):
        browser.press(",")
        weights = readings[expected].attentions[2].weights[1, 2]
        assert matrix(browser) == pytest.approx(weights.ravel().tolist(), abs=0.006)
        assert state(browser, "run") == [expected]
    assert browser.evaluate("[slider.value, sliderWords.textContent]") == ["0", "update 10"]
    browser.evaluate("slider.value = 2; slider.dispatchEvent(new Event('input'))")
    browser.evaluate("slider.focus()")
    browser.press(",")
    assert state(browser, "run") == [2], "the slider has the arrow keys only"
    browser.press("f")
    assert colors(browser) > 20
    charts = "trainingView.charts(panels[0]).map(({ values, across, up }) => [across(20), up(values[1][0][2])])"
    place = browser.evaluate(f"trainingView.at(panels[0], ...{charts}[0])")
    assert (place["layer"], place["head"], place["index"]) == (1, 3, 1)
    assert all(request.startswith(path.as_uri()) for request in browser.requests)
    browser.requests.clear()


def test_the_search_tree_says_what_the_length_penalty_did(browser, address):
    browser.open(f"{address}#view=search")
    cells = "Array.from(row.cells, (each) => each.textContent).join(' ')"
    rows = browser.evaluate(f"Array.from(document.querySelectorAll('#inspector tr'), (row) => {cells})")
    assert rows[1:] == ["1 2 3 -1.01 1.33 -0.76", "Ein Mann", "2 1 2 -1.00 1.16 -0.86", "Ein"]
    assert "2 kept, 1 dropped, 2 finished" in inspected(browser)
    place = "(() => { const box = panels[0].canvas.getBoundingClientRect(), found = treeView.boxOf(treeOf(panels[0].reading)"
    x, y = browser.evaluate(place + ".nodes[1]); return [box.left + found.x + 9, box.top + found.y + 9]; })()")
    browser.click(x, y)
    assert state(browser, "node") == [1]
    assert "forced: <i> Mann log p -3.30" in inspected(browser)
    browser.open(f"{address}#view=search&beside=2")
    browser.evaluate("treeView.choose({ node: 0 }, panels[1])")
    assert state(browser, "run", "beside") == [1, 0]


def test_texts_are_text(browser, address):
    browser.open(f"{address}#text=2&beside=2")
    assert browser.evaluate("byId('source').textContent") == " ".join(HOSTILE)
    assert browser.evaluate("document.querySelectorAll('body b').length") == 2, "the names of the two runs"
    assert browser.evaluate("document.title") == "made <b>up</b>"
    svg = browser.evaluate("svgPicture()")
    assert "&lt;script&gt;throw" in svg and "<script" not in svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")


@pytest.mark.slow
def test_no_word_or_number_in_the_address_stops_the_page(browser, address):
    words = product(("palette", "view", "measure", "kind", "theme", "shades"), ("constructor", "__proto__", "%00", ""))
    for name, word in words:
        browser.open(f"{address}#{name}={word}")
        assert colors(browser) > 20
    views = ("99", "matrix"), ("-7", "lines"), ("9" * 400, "search"), ("x", "statistics")
    for name, (number, view) in product(("row", "node", "layer", "text", "run", "zoom"), views):
        browser.open(f"{address}#view={view}&{name}={number}")
        assert matrix(browser)
