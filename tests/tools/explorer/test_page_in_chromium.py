"""The page in a real browser, with the network cut, its console watched, and every request counted."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from headless_chromium import browser_program, headless_chromium
from tools.explorer.made_readings import made_reading

from transformer_jax.tools.explorer.head_statistics import HeadStatistics
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.search_tree import Forced, Next, Node, SearchTree

pytestmark = pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)")

HOSTILE = ["\u2581<script>throw", "1</script>", "<!--", '"&amp;', "</s>"]
SOURCE = ["\u2581A", "\u2581man", "\u2581sleeps", ".", "</s>"]
TARGET = ["\u2581Ein", "\u2581Mann", "\u2581schl\u00e4ft", ".", "</s>"]
# Two tokens and an end; with the penalty the longer hypothesis wins.
TREE = SearchTree(
    2,
    1.0,
    [Next(5, "\u2581Ein", -0.1), Next(6, "\u2581<i>", -3.0)],
    [
        Node(-1, 0, 5, "\u2581Ein", -0.1, 0, "kept", following=[Next(7, "\u2581Mann", -1.2), Next(2, "</s>", -0.9)]),
        Node(-1, 0, 6, "\u2581<i>", -3.0, 1, "dropped"),
        Node(0, 1, 2, "</s>", -1.0, 0, "finished", -1.0 / 1.16, 1.16),
        Node(0, 1, 7, "\u2581Mann", -1.3, 1, "kept"),
        Node(3, 2, 2, "</s>", -1.01, 0, "finished", -1.01 / 1.33, 1.33),
    ],
    [Forced((6,), "<i> Mann", -2.5, -3.3)],
)


@pytest.fixture(scope="module")
def browser():
    with headless_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    page = Page("made <b>up</b>", [RunName("first", "update 1"), RunName("rnn", "update 2")])
    page.add_reading(made_reading(SOURCE, TARGET), TREE, text=0, run=0)
    page.add_statistics([HeadStatistics("cross", {"entropy": np.array([[0.5, 1.5]])}, "ten sentences")], run=0)
    page.add_statistics([HeadStatistics("cross", {"alignment": np.array([[0.4, 0.6]])}, "gold")], run=0)
    page.add_reading(made_reading(SOURCE, TARGET[:3], layers=1, heads=1, kinds=["cross"]), text=0, run=1)
    page.add_reading(made_reading(HOSTILE, HOSTILE), text=1, run=0)
    page.add_reading(made_reading(HOSTILE, HOSTILE, layers=1, heads=1, kinds=["cross"]), text=1, run=1)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(autouse=True)
def nothing_logged_and_nothing_fetched(browser, address):
    browser.messages.clear()
    browser.requests.clear()
    yield
    assert browser.messages == []
    assert [each for each in browser.requests if not each.startswith((address, "data:", "blob:", "about:"))] == []


def state(browser, *names):
    return [browser.evaluate(f"state.{name}") for name in names]


def colors(browser):
    """The different colors of the first canvas."""
    return browser.evaluate(
        "(() => { const { canvas, context } = panels[0]; const seen = new Set(new Uint32Array("
        "context.getImageData(0, 0, canvas.width, canvas.height).data.buffer)); return seen.size; })()"
    )


@pytest.mark.parametrize("view", ["matrix", "lines", "grid", "search", "statistics"])
@pytest.mark.parametrize("dark", [False, True])
def test_every_view_draws(browser, address, view, dark):
    browser.open(f"{address}#view={view}&kind=encoder&layer=2&head=3", dark=dark)
    assert state(browser, "view", "kind", "layer", "head") == [view, "encoder", 2, 3]
    browser.wait_for("thumbnails.size >= 8 || state.view !== 'grid'")
    assert colors(browser) > 20
    assert browser.evaluate("isDark()") is dark


def test_keys_move_and_the_address_follows(browser, address):
    browser.open(address)
    for key in ("e", "ArrowDown", "ArrowRight", "ArrowRight", "b", "r", "k"):
        browser.press(key)
    assert state(browser, "kind", "layer", "head", "view", "measure") == ["encoder", 2, 3, "lines", "rollout"]
    hash_ = browser.evaluate("location.hash")
    assert {"kind=encoder", "layer=2", "head=3", "view=lines"} <= set(hash_.removeprefix("#").split("&"))
    browser.open(address + hash_)
    assert state(browser, "kind", "layer", "head", "view", "measure") == ["encoder", 2, 3, "lines", "rollout"]


def test_values_on_the_page_are_those_of_the_model(browser, address):
    browser.open(f"{address}#kind=cross&layer=2&head=3")
    browser.wait_for("currentMatrix(panels[0])")
    reading = made_reading(SOURCE, TARGET)
    cross = reading.attentions[2]
    for measure, expected in (
        ("w", cross.weights.values[1, 2]),
        ("n", cross.weights.values[1, 2] * cross.value_norms.values[1, 2]),
        ("r", cross.rollout.values[1]),
        ("x", reading.gradients["cross"].values),
    ):
        browser.press(measure)
        browser.wait_for("currentMatrix(panels[0])")
        found = browser.evaluate("Array.from(currentMatrix(panels[0]).values)")
        assert found == pytest.approx(expected.ravel().tolist(), abs=0.03 if measure == "x" else 0.012)
    browser.press("0")
    browser.press("n")
    browser.wait_for("currentMatrix(panels[0])")
    found = browser.evaluate("Array.from(currentMatrix(panels[0]).values)")
    added = cross.weights.values[1] * cross.value_norms.values[1][:, None]
    cosines = np.zeros((4, 4, len(SOURCE)))
    cosines[np.tril_indices(4, -1)] = cross.value_cosines.values[1]
    cosines += np.swapaxes(cosines, 0, 1) + np.eye(4)[:, :, None]
    expected = np.sqrt(np.einsum("HQM,GQM,HGM->QM", added, added, cosines))
    assert found == pytest.approx(expected.ravel().tolist(), abs=0.02)


def test_pointing_and_searching_name_tokens(browser, address):
    browser.open(f"{address}#kind=cross")
    browser.wait_for("currentMatrix(panels[0])")
    left, top = browser.evaluate(
        "(() => { const box = panels[0].canvas.getBoundingClientRect(), found = layoutOf(panels[0], currentMatrix(panels[0]));"
        " return [box.left + found.left + found.cell * 2.5, box.top + found.top + found.cell * 1.5]; })()"
    )
    browser.move(left, top)
    heading = browser.evaluate("document.querySelector('#inspector h2').textContent")
    assert heading == "\u2423Mann (2) \u2192 \u2423sleeps (3)"
    browser.press("/")
    browser.type("schl")
    assert browser.evaluate("document.getElementById('said').textContent") == "1 of 1"
    assert state(browser, "row", "column") == [2, -1]
    browser.press("Escape")
    browser.press("Escape")
    browser.evaluate("byId('search').value = ''")
    browser.press("/")
    browser.type("n")
    assert state(browser, "row", "column") == [0, -1], "the first of three, not the last"
    browser.press("Enter")
    assert state(browser, "row", "column") == [1, -1]


def test_square_root_shades_show_faint_values(browser, address):
    browser.open(f"{address}#kind=cross")
    browser.wait_for("currentMatrix(panels[0])")
    faint = "stepOf(0.01, { largest: 1, isSigned: false })"
    before, painted = browser.evaluate(faint), browser.evaluate("currentMatrix(panels[0]).bitmapColors")
    browser.press("v")
    assert (before, browser.evaluate(faint)) == (3, 26)
    assert browser.evaluate("currentMatrix(panels[0]).bitmapColors") != painted


def inspected(browser):
    return browser.evaluate("document.getElementById('inspector').textContent")


def test_the_search_tree_says_what_the_length_penalty_did(browser, address):
    browser.open(f"{address}#view=search")
    rows = browser.evaluate(
        "Array.from(document.querySelectorAll('#inspector tr'), (row) => Array.from(row.cells, (each) => each.textContent))"
    )
    assert rows[1:] == [
        ["1", "2", "3", "-1.01", "1.33", "-0.76"],
        ["Ein Mann"],
        ["2", "1", "2", "-1.00", "1.16", "-0.86"],
        ["Ein"],
    ]
    assert "2 kept, 1 dropped, 2 finished" in inspected(browser)
    place = "(() => { const box = panels[0].canvas.getBoundingClientRect(), found = treeView.place(treeOf(panels[0].reading)"
    x, y = browser.evaluate(place + ".nodes[1]); return [box.left + found.x + 9, box.top + found.y + 9]; })()")
    browser.click(x, y)
    assert state(browser, "node") == [1]
    assert "forced: <i> Mann log p -3.30" in inspected(browser)


def test_texts_are_text(browser, address):
    browser.open(f"{address}#text=2&beside=2")
    assert browser.evaluate("document.getElementById('source').textContent") == " ".join(HOSTILE)
    assert browser.evaluate("document.querySelectorAll('body b').length") == 2, "the names of the two runs"
    assert browser.evaluate("document.title") == "made <b>up</b>"
    svg = browser.evaluate("svgPicture()")
    assert "&lt;script&gt;throw" in svg and "<script" not in svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_two_runs_side_by_side_and_a_phone(browser, address):
    browser.open(address, width=390, height=844, phone=True)
    browser.press("s")
    assert json.loads(browser.evaluate("JSON.stringify(panels.map((panel) => panel.run))")) == [0, 1]
    browser.wait_for("currentMatrix(panels[1])")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("pngPicture().then((canvas) => canvas.width)") > 100


def test_every_table_says_over_what_it_is(browser, address):
    browser.open(f"{address}#view=statistics&kind=cross")
    headings = browser.evaluate("statisticsView.layout(panels[0]).headings.map((each) => each.text)")
    assert headings == ["cross attention, ten sentences", "cross attention, gold"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["palette", "view", "measure", "kind", "theme", "shades"])
@pytest.mark.parametrize("word", ["constructor", "toString", "__proto__", "%00", ""])
def test_no_word_in_the_address_stops_the_page(browser, address, name, word):
    browser.open(f"{address}#{name}={word}")
    assert colors(browser) > 20
    browser.press("m")
    assert state(browser, "view") == ["matrix"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["row", "column", "node", "layer", "head", "text", "run", "beside", "zoom"])
@pytest.mark.parametrize("number", ["99", "-7", "9" * 400, "1e9", "x"])
def test_no_number_in_the_address_stops_the_page(browser, address, name, number):
    for view in ("matrix", "lines", "search", "statistics"):
        browser.open(f"{address}#view={view}&{name}={number}")
        browser.wait_for("currentMatrix(panels[0])")
        browser.press("v")
    assert browser.evaluate("state.row < readingOf(state.run).tokens.target.length")


def test_a_selected_token_is_let_go_where_another_run_has_none(browser, address):
    browser.open(f"{address}#row=5")
    browser.wait_for("currentMatrix(panels[0])")
    browser.press("s")
    browser.wait_for("currentMatrix(panels[1])")
    assert state(browser, "row") == [4]
    browser.evaluate("set({ run: 1, beside: -1 })")
    browser.wait_for("currentMatrix(panels[0])")
    assert state(browser, "row") == [-1]


def test_pictures_have_every_head_and_every_run(browser, address):
    browser.open(f"{address}#view=grid&kind=cross&zoom=5&beside=2", width=500, height=400)
    svg = browser.evaluate("svgPicture()")
    assert svg.count("<image") == 2 * 4 + 1
    assert "first update 1" in svg and "rnn update 2" in svg
    one = browser.evaluate("(set({ beside: -1 }), pngPicture().then((canvas) => canvas.width))")
    assert browser.evaluate("(set({ beside: 1 }), pngPicture().then((canvas) => canvas.width))") > one
