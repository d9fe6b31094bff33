"""What tests of a page in a browser share; each module has its own fixture ``address``."""

import pytest
from headless_chromium import headless_chromium
from shared_run import run

__all__ = ["run"]


@pytest.fixture(scope="module")
def browser():
    with headless_chromium() as opened:
        yield opened


@pytest.fixture
def nothing_logged_and_nothing_fetched(browser, address):
    browser.messages.clear()
    browser.requests.clear()
    yield
    assert browser.messages == []
    assert [
        request for request in browser.requests if not request.startswith((address, "data:", "blob:", "about:"))
    ] == []
