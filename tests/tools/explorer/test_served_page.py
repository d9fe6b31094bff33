"""The served page of a run in a real browser: the command serves it, a click asks the run, a failed question is asked again."""

import threading

import pytest
from headless_chromium import browser_program, headless_chromium
from tools.explorer.made_readings import made_reading

from transformer_jax.config import DataError
from transformer_jax.tools.explorer.page import Page, RunName
from transformer_jax.tools.explorer.search_tree import Forced, Next, Node, SearchTree
from transformer_jax.tools.explorer.server import listen_locally, make_app, make_local_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_program() is None, reason="needs Chromium (Debian package chromium)"),
]

TREE = SearchTree(
    1,
    0.0,
    [Next(5, "a", -0.1), Next(6, "b", -3.0)],
    [Node(-1, 0, 5, "a", -0.1, 0, "kept"), Node(0, 1, 2, "</s>", -0.2, 0, "finished", -0.2, 1.0)],
)
CHOICE = "[...document.querySelectorAll('#inspector button')].find((each) => each.textContent === 'b').click()"


def rendered(text):
    page = Page("served", [RunName("run", "update 1")], is_served=True)
    page.add_reading(made_reading(["a", "</s>"], ["a", text or "</s>"]), TREE, text=0, run=0)
    return page.html()


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
            browser.evaluate(CHOICE)
            browser.wait_for(f"byId('inspector').textContent.includes('{answer}')")
        assert asked == [(0, "a </s>", [6])] * 2
        assert [each for each in browser.requests if not each.startswith((address, "data:", "about:"))] == []
        server.shutdown()
        thread.join()
        server.server_close()
