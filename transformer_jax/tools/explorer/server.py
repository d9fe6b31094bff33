"""A local server for the page, which also runs forced decoding."""

import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from transformer_jax.config import ConfigError, DataError
from transformer_jax.files.json_text import is_unicode
from transformer_jax.tools.explorer.page import forced_to_json
from transformer_jax.tools.explorer.searches import Forced

try:
    from flask import Flask, Response, request
    from werkzeug.serving import BaseWSGIServer, make_server
except ImportError:
    raise ConfigError("--serve", "Flask is not installed", "pip install flask") from None

HOST = "127.0.0.1"
HTTP_BAD_REQUEST = 400
HTTP_FORBIDDEN = 403
# A request is one sentence and its prefix.
MAX_BODY_BYTES = 1 << 20
# Accepted values of Sec-Fetch-Site: this page, an address that the user typed, no browser.
OWN_SITES = ("same-origin", "none", "")

Render = Callable[[str | None], str]
"""Returns the page for a text, or for the texts of the command if None."""

Force = Callable[[int, str, Sequence[int]], Forced]
"""Returns the result of a search for a run number and a text that begins with a prefix."""


def make_app(render: Render, force: Force) -> Flask:
    """Return an app: a page at ``GET /?text=...``, and JSON for ``POST /forced``.

    Refuses requests for another host name or none (DNS rebinding), requests from another site or
    origin (an image or form of another page), requests to ``/forced`` that are not JSON, and bodies
    of more than ``MAX_BODY_BYTES``. No other page may frame this one. The model serves one request
    at a time.
    """
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    model = threading.Lock()

    @app.before_request
    def refuse_other_sites() -> tuple[dict, int] | None:
        # Flask before 3.1 ignores TRUSTED_HOSTS.
        if not re.fullmatch(rf"({re.escape(HOST)}|localhost)(:[0-9]{{1,5}})?", request.headers.get("Host", "")):
            return {"error": "the header Host names another machine, or is missing"}, HTTP_BAD_REQUEST
        is_own = request.headers.get("Origin", request.host_url[:-1]) == request.host_url[:-1]
        if is_own and request.headers.get("Sec-Fetch-Site", "") in OWN_SITES:
            return None
        return {"error": "request from another site; open the address in a new tab"}, HTTP_FORBIDDEN

    @app.after_request
    def refuse_frames(response: Response) -> Response:
        response.headers["X-Frame-Options"] = "DENY"
        response.headers["Content-Security-Policy"] = "frame-ancestors 'none'"
        return response

    @app.get("/")
    def page() -> Response:
        text = request.args.get("text", "").strip()
        with model:
            return Response(render(text or None), mimetype="text/html")

    @app.post("/forced")
    def forced() -> tuple[dict, int]:
        try:
            asked = request.get_json()
        except RecursionError:
            raise DataError("the request is nested too deeply") from None
        run, text, prefix = _fields(asked)
        with model:
            return forced_to_json(force(run, text, prefix)), 200

    @app.errorhandler(ConfigError)
    @app.errorhandler(DataError)
    def refused(error: Exception) -> tuple[dict, int]:
        return {"error": str(error)}, HTTP_BAD_REQUEST

    return app


def _fields(asked: Any) -> tuple[int, str, list[int]]:
    """Return ``run``, ``text`` and ``prefix`` of a request; raise DataError for other content."""
    match asked:
        case {"run": int(run), "text": str(text), "prefix": [*prefix]} if text.strip():
            # In Python JSON's true is an int.
            if all(type(number) is int for number in (run, *prefix)) and is_unicode(text):
                return run, text, prefix
    raise DataError("expected run (a number), text (not empty) and prefix (token ids)")


def listen_locally(port: int) -> socket.socket:
    """Bind a port of 127.0.0.1, 0 for any free one; raise ConfigError if it cannot be used."""
    try:
        return socket.create_server((HOST, port))
    except OSError:
        raise ConfigError("--port", f"{port} cannot be used on {HOST}", "give another, or 0 for any free one") from None


def make_local_server(app: Flask, listener: socket.socket) -> BaseWSGIServer:
    """Return a server with a thread per connection, so that an idle one blocks no other."""
    return make_server(HOST, listener.getsockname()[1], app, threaded=True, fd=listener.fileno())
