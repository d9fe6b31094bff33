"""The live page at work in a real browser: how it opens, its controls, map and tour, and the views
of softmax and layers."""

import numpy as np
import pytest
from headless_chromium import browser_program
from tools.explorer.small_runs import translation_run

from transformer_jax.tools.explorer.live import live_model
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.readers import READERS
from transformer_jax.tools.explorer.readings import opening

pytestmark = [
    pytest.mark.usefixtures("nothing_logged_and_nothing_fetched"),
    pytest.mark.slow,
    pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)"),
]
SETTLED = "performance.getEntriesByName('live').length > 0 && liveWords.textContent === ''"
PHONE = {"width": 390, "height": 844, "phone": True}
TEXT, EXAMPLE = "b a c", "a c b a"


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    trained = translation_run(tmp_path_factory.mktemp("run"), noise=0.6, num_decoder_layers=2, num_heads=4)
    opened = READERS["translation"](trained)
    return trained, opened.read(TEXT, with_gradients=False), opened.search(TEXT, 0)


@pytest.fixture(scope="module")
def address(tmp_path_factory, reading):
    trained, read, search = reading
    page = Page("live", [RunName("run", "update 1")])
    page.add_reading(read, search, text=0, run=0)
    page.add_model(live_model(trained))
    page.add_examples([EXAMPLE])
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    return path.as_uri()


def open_live(browser, address, hash_="", **size):
    browser.open(f"{address}#{hash_}", **size)
    browser.wait_for(SETTLED)


def test_it_opens_on_the_head_that_aligns_best_and_says_so(browser, address, reading):
    open_live(browser, address)
    expected = opening(reading[1])
    assert browser.evaluate("[state.kind, state.layer, state.head]") == ["cross", expected["layer"], expected["head"]]
    assert "of 8 heads the nearest to a word alignment" in browser.evaluate("panels[0].caption.firstChild.textContent")
    assert browser.evaluate("location.hash") == ""
    pressed = browser.evaluate("document.querySelector('#map .head[aria-pressed=true]').ariaLabel")
    assert pressed == f"decoder {expected['layer']} cross, head {expected['head']}"
    browser.press("0")
    assert "nearest" not in browser.evaluate("panels[0].caption.firstChild.textContent"), (
        "it is said of that head alone"
    )


def test_captions_side_by_side_are_whole_and_their_matrices_begin_at_one_height(browser, address):
    for size in ({"width": 1000, "height": 700}, PHONE):
        open_live(browser, address, "off=cross.1.head.1,cross.1.head.2,encoder.1.head.1", **size)
        clipped = "panels.map(({ caption }) => caption.scrollWidth > caption.clientWidth)"
        assert browser.evaluate(clipped) == [False, False]
        spans = "panels.map(({ caption: { firstChild } }) => firstChild.scrollWidth > firstChild.clientWidth)"
        assert browser.evaluate(spans) == [False, False]
        tops = browser.evaluate("panels.map(({ scroller }) => scroller.getBoundingClientRect().top)")
        assert (tops[0] == tops[1]) == (size is not PHONE), "on a phone they are below one another"
    assert "nearest" not in browser.evaluate("panels[0].caption.textContent")


def chips(browser, row):
    """The tokens of a row that are marked, and the shares of their bars in percent."""
    options = f"[...document.querySelector('.tokens .row[aria-label={row}]').querySelectorAll('.token')]"
    marked = f"{options}.flatMap((each, index) => each.ariaPressed === 'true' ? [index] : [])"
    return browser.evaluate(
        f"[{marked}, {options}.map((each) => Number.parseFloat(each.style.getPropertyValue('--share')))]"
    )


def test_source_tokens_are_chips(browser, address, reading):
    open_live(browser, address, "layer=1&head=2&row=2")
    assert chips(browser, "translation")[0] == [1]
    cross = reading[1].attentions[2]
    assert chips(browser, "source")[1] == pytest.approx((100 * cross.weights[0, 1, 1]).tolist(), abs=1)
    browser.evaluate("document.querySelectorAll('.tokens .row[aria-label=source] .token')[2].click()")
    assert browser.evaluate("[state.column, state.row]") == [2, -1]
    assert chips(browser, "source")[0] == [2]
    assert "is looked at by" in browser.evaluate("byId('inspector').textContent")


def test_enter_and_escape_leave_the_text_and_a_stale_result_is_marked(browser, address):
    open_live(browser, address)
    is_in_box = "document.activeElement === sourceInput"
    for key, source in (("Escape", TEXT), ("Enter", "c c")):
        browser.evaluate("sourceInput.focus(); sourceInput.select()")
        browser.type("c c")
        assert browser.evaluate("[strip.classList.contains('isStale'), staleWords.textContent]") == [
            True,
            "Enter: translate; Esc: back",
        ]
        browser.press(key)
        assert not browser.evaluate(is_in_box)
        browser.wait_for(f"liveReading(UNCHANGED).source === '{source}' && {SETTLED}")
        assert browser.evaluate("[strip.classList.contains('isStale'), sourceInput.value]") == [False, source]


def test_back_undoes_an_edit(browser, address):
    open_live(browser, address)
    browser.evaluate("toggle('cross.1.head.1')")
    browser.wait_for(f"liveReading(CHANGED) && {SETTLED}")
    browser.press("ArrowRight")
    browser.evaluate("[...document.querySelectorAll('.popup button')].pop().click()")
    browser.wait_for(f"liveReading(UNCHANGED).source === '{EXAMPLE}' && {SETTLED}")
    browser.evaluate("history.back()")
    browser.wait_for(f"liveReading(UNCHANGED).source === '{TEXT}' && {SETTLED}")
    assert browser.evaluate("state.off") == "cross.1.head.1", "a step of the head alone is no step of the history"
    browser.evaluate("history.back()")
    browser.wait_for(f"state.off === '' && !liveReading(CHANGED) && {SETTLED}")
    browser.evaluate("history.forward()")
    browser.wait_for(f"liveReading(CHANGED) && {SETTLED}")


def test_the_tour_shows_a_vector_then_the_largest_weight_and_keeps_the_focus(browser, address, reading):
    open_live(browser, address)
    browser.press("u")
    browser.wait_for(SETTLED)
    assert browser.evaluate("[state.view, state.column]") == ["vectors", 1]
    assert "the first 12 of 16 numbers" in browser.evaluate("byId('inspector').textContent")
    back = "[...document.querySelectorAll('.tour button')][0]"
    assert browser.evaluate(f"[{back}.ariaDisabled, {back}.title]") == ["true", "this is the first step"]
    browser.evaluate(
        "[...document.querySelectorAll('.tour button')].find((each) => each.textContent === 'next').focus()"
    )
    lit = "[...document.querySelectorAll('#map .part.lit button:first-child')].map((each) => each.textContent)"
    assert browser.evaluate(lit) == ["embedding + position"]
    words, reached = slice(0, -1), {}
    for step in range(2, 6):
        browser.evaluate("document.activeElement.click()")
        browser.wait_for(f"state.tour === '{step}' && {SETTLED}")
        assert browser.evaluate("document.activeElement.textContent") == "next"
        reached[step] = browser.evaluate("[state.view, state.kind, state.layer, state.head, state.row, state.column]")
    encoder, _, cross = (attention.weights.copy() for attention in reading[1].attentions)
    encoder[:, :, np.arange(4), np.arange(4)] = 0
    for step, view, kind, weights in (
        (3, "matrix", "encoder", encoder),
        (4, "neurons", "cross", cross),
        (5, "softmax", "cross", cross),
    ):
        assert reached[step][:2] == [view, kind]
        layer, head, row, column = reached[step][2:]
        of_words = weights[:, :, words, words]
        assert weights[layer - 1, head - 1, row, column] == pytest.approx(of_words.max(), abs=0.01)
        assert row < of_words.shape[2] and column < of_words.shape[3], "not the end of the sentence"


def test_two_models_have_one_order_one_size_and_a_name_in_words(browser, address):
    open_live(browser, address, "off=cross.2.head.1,cross.2.head.3,encoder.1.residual")
    for row in ("unchanged", "changed"):
        browser.evaluate(f"document.querySelectorAll('.tokens .row[aria-label={row}] .token')[0].click()")
        assert browser.evaluate("panels.map(({ run }) => run)") == [1, 2]
        assert browser.evaluate("state.run") == {"unchanged": 1, "changed": 2}[row]
    layouts = browser.evaluate("panels.map((panel) => layoutOf(panel, currentMatrix(panel)))")
    assert layouts[0] == layouts[1]
    captions = browser.evaluate("panels.map(({ caption }) => caption.firstChild.textContent)")
    assert captions[0].startswith("unchanged: decoder layer ")
    assert captions[1] == "changed: decoder 2, cross-attention heads 1, 3; encoder 1, residual off"


def test_cells_grow_with_the_panel(browser, address):
    sizes = {}
    for width in (1100, 1800):
        open_live(browser, address, width=width, height=width // 2)
        sizes[width] = browser.evaluate("layoutOf(panels[0], currentMatrix(panels[0])).cell")
    assert 34 < sizes[1100] < sizes[1800]
    assert browser.evaluate("document.querySelector('header').offsetHeight") < 60, "one bar"


def test_a_phone_has_two_selects_and_sheets_from_below(browser, address):
    open_live(browser, address, **PHONE)
    visible = "[...document.querySelectorAll('header > :is(select, button, details, div)')].filter((each) => each.offsetParent)"
    assert browser.evaluate(f"{visible}.map((each) => each.id)") == ["views", "attention", "tour", "menu"]
    browser.evaluate("byId('attention').value = 'encoder,1,3'; byId('attention').dispatchEvent(new Event('change'))")
    assert browser.evaluate("[state.kind, state.layer, state.head]") == ["encoder", 1, 3]
    assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sheets = "['map', 'side'].map((id) => byId(id).offsetHeight > 0)"
    assert browser.evaluate(sheets) == [False, False]
    for tab, is_open in ((0, [True, False]), (1, [False, True]), (1, [False, False])):
        browser.evaluate(f"byId('tabs').children[{tab}].click()")
        assert browser.evaluate(sheets) == is_open
        assert browser.evaluate("[...byId('tabs').children].map((each) => each.ariaExpanded === 'true')") == is_open


def test_groups_have_one_stop_and_arrow_keys_and_a_link_skips_to_the_picture(browser, address):
    open_live(browser, address)
    for group in ("#view", "#map"):
        stops = f"[...document.querySelectorAll('{group} button')].filter((each) => each.tabIndex === 0 && each.offsetParent)"
        assert browser.evaluate(f"{stops}.length") == 1, group
    before = browser.evaluate("[byId('view').children[0].focus(), state.layer, state.head].slice(1)")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.value") == "lines"
    assert browser.evaluate("[state.layer, state.head]") == before, "the arrow moves the focus, not the head"
    browser.evaluate("document.querySelector('#map .head').focus()")
    for key, name in (("ArrowRight", "encoder 1 self, head 2"), ("ArrowDown", None), ("ArrowUp", None)):
        browser.press(key)
        if name:
            assert browser.evaluate("document.activeElement.ariaLabel") == name
    assert browser.evaluate("document.activeElement.textContent") == "self-attention"
    browser.evaluate("byId('skip').click()")
    assert browser.evaluate("[document.activeElement === panels[0].canvas, location.hash]") == [True, ""]


def test_the_map_switches_parts_off_and_follows_a_token(browser, address):
    open_live(browser, address, "row=2")
    browser.wait_for("[...mapBoxes.values()].some(({ says }) => says.textContent.includes('says'))")
    lens = browser.evaluate("lensOf(readingOf(state.run)).points[1].rows[1].best[0]")
    said = browser.evaluate("mapBoxes.get('decoder.1.self').says.textContent")
    assert said.startswith("reads “") and said.endswith(f"{np.exp(lens[2]):.2f}")
    assert not browser.evaluate("document.querySelector('#map .switch').offsetParent !== null")
    browser.evaluate("document.querySelector('#map .choice [value=switch]').click()")
    browser.evaluate("document.querySelector('#map [value=\"decoder.2.residual\"]').click()")
    browser.evaluate("mapBoxes.get('encoder.1.self').box.querySelector('button').click()")
    assert browser.evaluate("state.off").split(",") == [
        "decoder.2.residual",
        *(f"encoder.1.head.{head}" for head in (1, 2, 3, 4)),
    ]


def test_a_softmax_follows_its_temperature(browser, address):
    open_live(browser, address, "view=softmax&layer=1&head=2&row=2")
    browser.wait_for("softmaxView.blocks(panels[0]).every(({ scores }) => scores)")
    blocks = browser.evaluate("softmaxView.blocks(panels[0]).map(({ scores, all }) => [scores, [...all || scores]])")
    assert len(blocks) == 2
    for temperature in (1, 0.5, 3):
        browser.evaluate(f"heatInput.value = {temperature}; heatInput.dispatchEvent(new Event('input'))")
        assert browser.evaluate("heatWords.textContent") == f"{temperature:.1f}"
        for index, (scores, whole) in enumerate(blocks):
            of_block = f"softmaxView.blocks(panels[0])[{index}]"
            shares = browser.evaluate(f"(({{ scores, all }}) => softmaxRow(scores, heat, all).shares)({of_block})")
            powers = np.exp((np.array(scores) - np.max(whole)) / temperature)
            expected = powers / np.exp((np.array(whole) - np.max(whole)) / temperature).sum()
            assert shares == pytest.approx(expected.tolist(), abs=1e-5)


def test_layers_end_with_the_model(browser, address):
    open_live(browser, address, "view=layers&row=2")
    browser.wait_for("lensOf(readingOf(state.run)).points")
    last, probability = browser.evaluate(
        "[lensOf(readingOf(state.run)).points.at(-1).rows[1].logProb, readingOf(state.run).logProbs[1]]"
    )
    assert last == pytest.approx(probability, abs=1e-5)
    titles = browser.evaluate("lensOf(readingOf(state.run)).points.map(({ name }) => pointTitle(name))")
    assert titles[:4] == ["embedding", "1 self-attention", "1 cross-attention", "1 feed-forward"]
    assert "the way of this token" in browser.evaluate("byId('inspector').textContent")


def test_long_and_unknown_text_is_told(browser, address):
    open_live(browser, address)
    longest = browser.evaluate("model.training.limit")
    browser.evaluate(f"sourceInput.value = 'x' + ' a'.repeat({longest}) + ' \u732b'; sourceInput.form.requestSubmit()")
    browser.wait_for(f"liveReading(UNCHANGED).source.startsWith('x') && {SETTLED}")
    remarks = browser.evaluate("byId('remarks').textContent")
    assert "never saw in training: \u732b" in remarks and f"it has {longest + 2}" in remarks


def test_controls_that_mean_nothing_are_gone_and_others_say_why_they_rest(browser, address):
    open_live(browser, address)
    is_shown = "(id) => byId(id).offsetParent !== null"
    browser.evaluate("byId('menu').open = true")
    assert browser.evaluate(f"['run', 'beside', 'text'].map({is_shown})") == [False, False, True]
    names = browser.evaluate("[...byId('view').children].map((each) => each.value)")
    assert "statistics" not in names and "layers" in names
    assert "difference" not in browser.evaluate("[...byId('measure').options].map((each) => each.value)")
    browser.evaluate("set({ text: 0 })")
    rests = browser.evaluate("[...byId('view').children].filter((each) => each.ariaDisabled).map((each) => each.title)")
    assert "layers: of the live text" in rests
    browser.evaluate("byId('view').querySelector('[value=layers]').click()")
    assert browser.evaluate("state.view") == "matrix"
