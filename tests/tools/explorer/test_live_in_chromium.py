"""The live page in a real browser with the network cut: edits, hostile texts and addresses."""

import pytest
from headless_chromium import browser_program
from tools.explorer.small_runs import LOCATION, RNN, language_model_run, translation_run

from transformer_jax.tools.explorer.live import live_model
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readers import READERS

pytestmark = [
    pytest.mark.usefixtures("nothing_logged_and_nothing_fetched"),
    pytest.mark.slow,
    pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)"),
]
HOSTILE = ["\u2581<script>throw", "</script><script>throw 1</script>", "<!--", '"&amp;', "<img src=x onerror=throw>"]
SETTLED = "liveWords.textContent === ''"
KINDS = {
    "transformer": (lambda folder: translation_run(folder, normalization="pre"), "cross.1.head.1", 6),
    "rnn": (lambda folder: translation_run(folder, **RNN, **LOCATION), "cross.1.head.1", 4),
    "language_model": (language_model_run, "decoder.1.head.1", 2),
}
"""By kind of model: a run, a part that can be off, and the number of parts whose effects are
shown."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def address(tmp_path_factory, kind):
    folder = tmp_path_factory.mktemp("page")
    trained = KINDS[kind][0](folder)
    opened = READERS[trained.config.task](trained)
    model = live_model(trained)
    model.description["tokenizers"][0]["pieces"][5:10] = HOSTILE
    page = Page("live", [RunName("run", "update 1")])
    page.add_reading(opened.read("b a c", "a b", with_gradients=False), opened.search("b a c", 0), text=0, run=0)
    page.add_model(model)
    path = folder / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    return path.as_uri()


def open_live(browser, address, hash_=""):
    browser.open(f"{address}#{hash_}")
    browser.wait_for(f"performance.getEntriesByName('live').length > 0 && {SETTLED}")


def translations(browser):
    tokens = "Array.from(row.querySelectorAll('.token'), (each) => each.textContent)"
    rows = "document.querySelectorAll('.tokens .row:not([aria-label=source])')"
    return browser.evaluate(f"Array.from({rows}, (row) => {tokens})")


def test_edits_change_the_page_and_the_address(browser, address, kind):
    open_live(browser, address)
    (unchanged,) = translations(browser)
    part = KINDS[kind][1]
    browser.evaluate(f"toggle('{part}')")
    browser.wait_for(f"liveReading(CHANGED) && {SETTLED}")
    assert browser.evaluate("[state.run, state.beside]") == [2, 1]
    assert len(translations(browser)) == 2
    assert f"off={part}" in browser.evaluate("location.hash")
    browser.press("y")
    assert browser.evaluate("state.measure") == "difference"
    open_live(browser, address, browser.evaluate("location.hash.slice(1)"))
    assert browser.evaluate("[state.measure, state.run]") == ["difference", 2]
    browser.press("z")
    browser.wait_for(f"!liveReading(CHANGED) && {SETTLED}")
    assert translations(browser) == [unchanged]
    browser.evaluate("sourceInput.value = 'c\\na '; sourceInput.focus()")
    browser.press("Enter")
    read = r"c\na " if kind == "language_model" else "c a"
    browser.wait_for(f"liveReading(UNCHANGED).source === '{read}'")
    assert browser.evaluate("readingOf(state.run).tokens.input[0]") == "<s>"


def test_a_token_is_forced_and_explained(browser, address, kind):
    open_live(browser, address, "row=1")
    buttons, rows = (f"[...document.querySelectorAll('#inspector {name}')]" for name in ("button", "tr"))
    browser.evaluate(f"{buttons}.find((each) => each.textContent === 'why not?').click()")
    browser.wait_for("document.querySelector('#inspector details')")
    assert "falls by" in browser.evaluate("document.querySelector('#inspector details').textContent")
    browser.evaluate(f"{rows}.filter((row) => row.querySelector('[title^=force]'))[2].querySelector('button').click()")
    browser.wait_for(f"liveReading(CHANGED) && {SETTLED}")
    assert browser.evaluate("document.querySelectorAll('.token.forced').length") == 1
    assert browser.evaluate("liveReading(CHANGED).targetIds[0] === Number(state.force)")
    if kind == "language_model":
        # The word replaces a space of "b a c", and begins with one.
        open_live(browser, address, "row=2")
        browser.evaluate("document.querySelector('[name=word]').value = 'x'")
        browser.evaluate("document.querySelector('[name=word]').form.requestSubmit()")
        browser.wait_for("state.force !== ''")
        assert browser.evaluate("state.force.split('.').map(Number)") == [byte + 4 for byte in b"b x"]


def test_effects_and_products(browser, address, kind):
    open_live(browser, address, "view=effects")
    browser.wait_for("effectsOf(readingOf(state.run)).changes")
    assert browser.evaluate("effectsOf(readingOf(state.run)).changes.length") == KINDS[kind][2]
    open_live(browser, address, "view=neurons&row=1&column=1&head=1")
    browser.wait_for("productsOf(readingOf(state.run)).terms")
    assert "Scores of this query" in browser.evaluate("byId('inspector').textContent")
    open_live(browser, address, "view=search&node=2")
    assert browser.evaluate("[state.view, state.node]") == ["search", 1]
    if kind == "transformer":
        open_live(browser, address, "view=effects&kind=encoder&row=2")
        browser.wait_for("effectsOf(readingOf(state.run)).changes")
        assert "instead of" not in browser.evaluate("byId('inspector').textContent"), "the row is a token of the source"
        assert browser.evaluate("document.querySelectorAll('.token.marked').length") == 0
    if kind == "rnn":
        open_live(browser, address, "view=vectors&column=2")
        assert "is looked at by" in browser.evaluate("byId('inspector').textContent")
        assert browser.evaluate("[state.view, readingOf(state.run).states.target.size]") == ["vectors", 12]


def test_a_hostile_vocabulary_is_text(browser, address):
    open_live(browser, address, "force=5.6.7.8.9")
    browser.wait_for("liveReading(CHANGED)")
    assert "</script><script>throw" in browser.evaluate("tokenRows.textContent")
    assert browser.evaluate("document.querySelectorAll('img, .tokens script').length") == 0
    browser.evaluate("sourceInput.value = '<script>throw 1</script> \\u{d800}'; sourceInput.form.requestSubmit()")
    browser.wait_for(f"liveReading(UNCHANGED).source.startsWith('<script>') && {SETTLED}")


@pytest.mark.parametrize("name", ["force", "off", "beam", "penalty", "temperature", "length", "tour", "source"])
def test_no_edit_in_the_address_stops_the_page(browser, address, name):
    # A source of 400 tokens is too long for the language model.
    for word in ("__proto__", "-1", "9" * (20 if name == "source" else 400), "1.1.1", "2.2", "NaN"):
        open_live(browser, address, f"{name}={word}")
        assert len(translations(browser)[0]) > 0
    open_live(browser, address, f"text=99&run=99&beside=99&{name}=%00")
