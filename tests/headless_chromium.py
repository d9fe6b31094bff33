"""A headless Chromium without a network, driven by its DevTools protocol over a pipe; its console
and its requests are kept."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# No sandbox: tests may run as root. Every name resolves to nothing, and what is not a name goes to
# a closed port.
SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run")
SWITCHES += ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars")
SWITCHES += ("--force-color-profile=srgb",)
WITHOUT_NETWORK = ("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9")


def browser_program() -> str | None:
    """The path of a browser, None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Browser:
    """One page. ``messages`` are the errors and warnings of its console, ``requests`` the addresses
    it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._numbers, self._buffer = itertools.count(1), b""
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def open(
        self, address: str, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False
    ) -> None:
        """Opens a page and waits until the explorer has drawn it."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self._send("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        # A new fragment alone would not load the page again.
        self._send("Page.navigate", url="about:blank")
        self._send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && performance.getEntriesByName('first view').length > 0")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of the page; promises are awaited."""
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 30) -> None:
        polling = (
            "new Promise((done, failed) => { const end = performance.now() + %d; const look = () => { let found = false;"
            " try { found = %s; } catch { /* not loaded yet */ }"
            " found ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 10); }; look(); })"
        )
        for _ in range(100):
            try:
                assert self.evaluate(polling % (1000 * seconds, condition)), f"never true: {condition}"
                return
            except LostContext:
                continue

    def screenshot(self) -> bytes:
        """The visible part of the page as PNG."""
        return base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"])

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self._send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self._send("Input.insertText", text=text)

    def move(self, x: float, y: float) -> None:
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    error = answer["error"]["message"]
                    raise LostContext(error) if "context" in error or "navigat" in error else AssertionError(error)
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._from, 1 << 16)
            if not chunk:
                raise AssertionError("the browser has ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.messages.append(str(event["exceptionDetails"].get("exception", event["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(f"{event['type']}: {[each.get('value') for each in event['args']]}")
        elif method == "Log.entryAdded":
            self.messages.append(f"{event['entry']['level']}: {event['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])


class LostContext(AssertionError):
    """The page went away while it was asked."""


@contextmanager
def headless_chromium(*, network: bool = False) -> Iterator[Browser]:
    """A browser with a profile of its own, gone with it; ``network`` lets it reach this machine."""
    program = browser_program()
    assert program, "there is no browser"
    into_read, into_write = os.pipe()
    out_read, out_write = os.pipe()

    # Chromium reads from 3 and writes to 4. A shell puts them there: a function between fork and
    # exec is not safe with threads.
    begin = f'exec "$0" "$@" 3</dev/fd/{into_read} 4>/dev/fd/{out_write}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        switches = [*SWITCHES, *(() if network else WITHOUT_NETWORK), f"--user-data-dir={profile}"]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(["sh", "-c", begin, program, *switches], pass_fds=(into_read, out_write), **quiet)
        os.close(into_read)
        os.close(out_write)
        try:
            yield Browser(into_write, out_read)
        finally:
            os.close(into_write)
            os.close(out_read)
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
