"""The page in a real browser, with the network cut, its console watched, and every request counted; then served."""

import threading
from dataclasses import replace
from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest
from headless_chromium import browser_program, headless_chromium
from tools.explorer.made_readings import made_reading

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.head_statistics import HeadStatistics
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readings import curve_points
from transformer_jax.tools.explorer.searches import Forced, Next, Node, SearchTree
from transformer_jax.tools.explorer.server import listen_locally, make_app, make_local_server

pytestmark = [
    pytest.mark.usefixtures("nothing_logged_and_nothing_fetched"),
    pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)"),
]

BUTTONS = "[...document.querySelectorAll('#inspector button')]"
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
    assert browser.evaluate("byId('layer').selectedOptions[0].textContent") == "3"


def test_keys_move_and_the_address_follows(browser, address):
    browser.open(address)
    for key in ("e", "ArrowDown", "ArrowRight", "ArrowRight", "b", "r", "k"):
        browser.press(key)
    hash_ = browser.evaluate("location.hash")
    assert {"kind=encoder", "layer=2", "head=3", "view=lines"} <= set(hash_.removeprefix("#").split("&"))
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
    page.add_curves("cross", "entropy", [curve_points(each)["cross"]["entropy"] for each in readings[1:]], text=0)
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
    assert all(each.startswith(path.as_uri()) for each in browser.requests)
    browser.requests.clear()


def test_a_chosen_run_that_lacks_the_text_shows_the_first(browser, address, tmp_path):
    page = Page("runs", [RunName(name, "update 1") for name in ("first", "second", "third")])
    for text, run in ((0, 0), (0, 1), (1, 0), (1, 2)):
        page.add_reading(made_reading(SOURCE, TARGET), text=text, run=run)
    path = tmp_path / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    browser.open(f"{path.as_uri()}#text=2")
    browser.requests.clear()
    for run, text in ((1, 0), (2, 1), (1, 0)):
        browser.evaluate(f"byId('run').value = {run}; byId('run').dispatchEvent(new Event('change'))")
        assert state(browser, "text", "run") == [text, run]
    browser.press("s")
    assert state(browser, "run", "beside") == [1, 0], "the third run has not read this text"


def test_paper_shows_the_whole_view(browser, address):
    browser.open(f"{address}#kind=cross&zoom=9&theme=dark", height=420)
    assert matrix(browser)
    assert browser.evaluate("matrixView.extent(panels[0]).height > panels[0].height")
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    texts = browser.evaluate("Array.from(document.querySelectorAll('#sheet text'), (each) => each.textContent)")
    assert {token.replace("\u2581", "\u2423") for token in TARGET} <= set(texts)
    assert browser.evaluate("document.documentElement.dataset.theme") == "light"
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("[document.documentElement.dataset.theme, byId('sheet').children.length]") == ["dark", 0]


def test_pointing_and_searching_name_tokens(browser, address):
    browser.open(f"{address}#kind=cross")
    assert matrix(browser)
    place = "(box, found) => [box.left + found.left + found.cell * 2.5, box.top + found.top + found.cell * 1.5]"
    found = "panels[0].canvas.getBoundingClientRect(), layoutOf(panels[0], currentMatrix(panels[0]))"
    browser.move(*browser.evaluate(f"({place})({found})"))
    heading = browser.evaluate("document.querySelector('#inspector h2').textContent")
    assert heading == "\u2423Mann (2) \u2192 \u2423sleeps (3)"
    browser.press("/")
    browser.type("schl")
    assert browser.evaluate("byId('said').textContent") == "1 of 1"
    assert state(browser, "row", "column") == [2, -1]
    browser.press("Escape")
    browser.press("Escape")
    browser.evaluate("byId('search').value = ''")
    browser.press("/")
    browser.type("n")
    assert state(browser, "row", "column") == [0, -1], "the first of three, not the last"
    browser.press("Enter")
    assert state(browser, "row", "column") == [1, -1]


def test_the_color_scale_is_of_both_panels_and_of_their_shades(browser, address):
    browser.open(f"{address}#kind=cross&beside=2&measure=norms&shades=root")
    browser.wait_for("panels.every((each) => currentMatrix(each))")
    largest = browser.evaluate("panels.map((each) => currentMatrix(each).largest)")
    assert largest[0] != largest[1]
    canvas, words = ("byId('scale').children[0]", "byId('scale').children[1].textContent")
    assert browser.evaluate(words).endswith(f" {max(largest):.3f}")
    pixel = (
        f"Array.from({canvas}.getContext('2d').getImageData({canvas}.width - 1 >> 2, 0, 1, 1).data.slice(0, 3)).join()"
    )
    share = f"({canvas}.width - 1 >> 2) / ({canvas}.width - 1)"
    assert browser.evaluate(f"'rgb(' + {pixel} + ')' === cssColor({share}, {{ largest: 1, isSigned: false }})")
    browser.open(f"{address}#view=grid&kind=cross")
    browser.wait_for("currentMatrix(panels[0])")
    assert browser.evaluate(words) == "0 … largest of each picture"


def test_a_node_of_a_tree_chooses_its_token(browser, address):
    browser.open(f"{address}#run=2")
    assert matrix(browser)
    nodes = f"{BUTTONS}.filter((each) => ['S', 'sleeps'].includes(each.textContent))"
    assert browser.evaluate(f"{nodes}.map((each) => each.disabled)") == [False, True]
    browser.evaluate(f"{nodes}[0].click()")
    assert state(browser, "row", "column") == [1, -1]


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


def test_a_number_of_the_statistics_opens_its_own_kind(browser, address):
    browser.open(f"{address}#view=statistics&kind=encoder")
    browser.evaluate("statisticsView.choose(statisticsView.at(panels[0], 90, 75))")
    assert state(browser, "view", "kind", "layer", "head") == ["matrix", "cross", 1, 2]


def test_the_keys_can_be_closed_without_a_key(browser, address):
    browser.open(address)
    browser.press("?")
    assert browser.evaluate("byId('keys').open")
    browser.evaluate("byId('keys').querySelector('button').click()")
    assert not browser.evaluate("byId('keys').open")


def test_texts_are_text(browser, address):
    browser.open(f"{address}#text=2&beside=2")
    assert browser.evaluate("byId('source').textContent") == " ".join(HOSTILE)
    assert browser.evaluate("document.querySelectorAll('body b').length") == 2, "the names of the two runs"
    assert browser.evaluate("document.title") == "made <b>up</b>"
    svg = browser.evaluate("svgPicture()")
    assert "&lt;script&gt;throw" in svg and "<script" not in svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_two_runs_side_by_side_and_a_phone(browser, address):
    browser.open(address, width=390, height=844, phone=True)
    browser.press("s")
    assert browser.evaluate("panels.map((panel) => panel.run)") == [0, 1]
    browser.wait_for("currentMatrix(panels[1])")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("pngPicture().then((canvas) => canvas.width)") > 100


def test_negative_weights_have_colors(browser, address):
    browser.open(f"{address}#kind=cross")
    assert matrix(browser)
    made = "(() => { const attention = attentionOf(panels[0].reading), values = new Float32Array(100).fill(-0.5);"
    made += " attention.weights = attention.weights.map(() => ({ values })); matrices.clear();"
    made += " return currentMatrix(panels[0]); })()"
    assert browser.evaluate(f"cssColor(-0.5, {made}) === `rgb(${{SIGNED.light[0].join()}})`")


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


def rendered(text):
    nodes = [Node(-1, 0, 5, "a", -0.1, 0, "kept"), Node(0, 1, 2, "</s>", -0.2, 0, "finished", -0.2, 1.0)]
    tree = SearchTree(1, 0.0, [Next(5, "a", -0.1), Next(6, "b", -3.0)], nodes)
    page = Page("served", [RunName("run", "update 1")], is_served=True)
    page.add_reading(made_reading(["a", "</s>"], ["a", text or "</s>"]), tree, text=0, run=0)
    return page.html()


@pytest.mark.slow
def test_a_click_asks_the_run_and_asks_again_after_a_failure():
    asked = []

    def force(run, text, prefix):
        asked.append((run, text, list(prefix)))
        if len(asked) == 1:
            raise DataError("not now")
        return Forced(tuple(prefix), "b b", -1.0, -2.0)

    with listen_locally(0) as listener, headless_chromium(network=True) as browser:
        server = make_local_server(make_app(rendered, force), listener)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.port}/"
        browser.open(f"{address}?text=c#view=search&node=1")
        assert browser.evaluate("panels[0].reading.tokens.target")[1] == "c"
        for answer in ("not now", "forced: b b"):
            browser.evaluate(f"{BUTTONS}.find((each) => each.textContent === 'b').click()")
            browser.wait_for(f"byId('inspector').textContent.includes('{answer}')")
        assert asked == [(0, "a </s>", [6])] * 2
        assert [each for each in browser.requests if not each.startswith((address, "data:", "about:"))] == []
        server.shutdown()
        thread.join()
        server.server_close()
